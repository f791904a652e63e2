"""The moving averages of the weights that an optimizer with `use_ema=True` computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.learning_rate import innermost
from horovodjob_trainer.hvd.model_optimizers import used_optimizers


@contextmanager
def averages_in_model(model: Any) -> Iterator[None]:
    """Within this context, the model has the averages as weights, and the optimizer has the weights as averages."""
    pairs = _pairs(model)
    _swap(pairs)
    try:
        yield
    finally:
        _swap(pairs)


def use_averages(model: Any) -> None:
    """Assign the averages to the weights of the model, as `fit` of Keras does at its end."""
    for weight, average in _pairs(model):
        weight.assign(average)


def _pairs(model: Any) -> list[tuple[Any, Any]]:
    """The weights with their averages. There are none before the first step."""
    pairs: list[tuple[Any, Any]] = []
    for optimizer in map(innermost, used_optimizers(model)):
        if optimizer.use_ema and int(optimizer.iterations):
            pairs += zip(optimizer._trainable_variables, optimizer._model_variables_moving_average, strict=True)
    return [(weight, average) for weight, average in pairs if average is not None]


def _swap(pairs: list[tuple[Any, Any]]) -> None:
    for weight, average in pairs:
        value = tf.identity(weight.value)
        weight.assign(average)
        average.assign(value)
