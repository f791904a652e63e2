"""The moving averages of the weights that an optimizer with `use_ema=True` computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.learning_rate import innermost


@contextmanager
def averages_in_model(model: Any) -> Iterator[None]:
    """Within this context, the model has the averages as weights, and the optimizer has the weights as averages."""
    pairs = _pairs(innermost(model.optimizer))
    _swap(pairs)
    try:
        yield
    finally:
        _swap(pairs)


def use_averages(model: Any) -> None:
    """Assign the averages to the weights of the model, as `fit` of Keras does at its end."""
    for weight, average in _pairs(innermost(model.optimizer)):
        weight.assign(average)


def _pairs(optimizer: Any) -> list[tuple[Any, Any]]:
    """The weights with their averages. There are none before the first step."""
    if not optimizer.use_ema or not int(optimizer.iterations):
        return []
    pairs = zip(optimizer._trainable_variables, optimizer._model_variables_moving_average, strict=True)
    return [(weight, average) for weight, average in pairs if average is not None]


def _swap(pairs: list[tuple[Any, Any]]) -> None:
    for weight, average in pairs:
        value = tf.identity(weight.value)
        weight.assign(average)
        average.assign(value)
