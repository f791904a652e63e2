"""The statistics of the data in normalization layers, which training does not synchronize."""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.process_sets import UNSCOPED


def average_statistics(model: Any) -> None:
    """Assign to the normalization layers of all ranks the mean and the variance of the data of all ranks."""
    pairs = list(_statistics(model))
    if not pairs:
        return
    means = [tf.cast(mean.value, tf.float64) for mean, _ in pairs]
    squares = [tf.cast(variance.value, tf.float64) + mean**2 for mean, (_, variance) in zip(means, pairs, strict=True)]
    averages = exchange.grouped_allreduce([*means, *squares], op=exchange.Average, name="HorovodStatistics", **UNSCOPED)
    count = len(pairs)
    for (mean, variance), average, square in zip(pairs, averages[:count], averages[count:], strict=True):
        mean.assign(tf.cast(average, mean.dtype))
        variance.assign(tf.cast(tf.maximum(square - average**2, 0.0), variance.dtype))
    finalize_normalization(model)


def finalize_normalization(model: Any) -> None:
    """Let the Normalization layers use the current values of their variables."""
    for layer in _adapted_layers(model):
        layer.finalize_state()


def _adapted_layers(model: Any) -> list[Any]:
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Normalization)]
    return [layer for layer in layers if layer.built and layer.input_mean is None]


def _statistics(model: Any) -> Iterator[tuple[Any, Any]]:
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization) and layer.built:
            yield layer.moving_mean, layer.moving_variance
    for layer in _adapted_layers(model):
        yield layer.adapt_mean, layer.adapt_variance
