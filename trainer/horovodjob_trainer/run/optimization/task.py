"""The loss and the metrics of the user's own task, and whether they fit the model and the data."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.errors import ModelError
from horovodjob_trainer.import_string import call_function

REASON_CHARACTERS = 300


def task_loss_and_metrics(import_string: str, classes: int | None) -> tuple[Any, Any]:
    """What the function of --task returns: a loss and metrics, in any form that `compile` of Keras accepts.

    It is called with `classes`, the number of classes or None, if it declares it. Raises ModelError.
    """
    result = call_function(import_string, classes=classes)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ModelError(
            f"{import_string} returned {type(result).__module__}.{type(result).__qualname__}; return a tuple of a loss "
            "and a list of metrics, as for compile() of Keras"
        )
    loss, metrics = result
    parts = keras.tree.flatten(loss)
    if not parts or any(not isinstance(each, str) and not callable(each) for each in parts):
        raise ModelError(f"{import_string} returned {loss!r} as the loss; return the name of a loss, a function or an "
                         "object of keras.losses, or one of them for each output")  # fmt: skip
    if metrics is not None and not isinstance(metrics, list | dict):
        raise ModelError(f"{import_string} returned {metrics!r} as the metrics; return a list, which can be empty")
    return loss, metrics


def check_default_loss(spec: tuple[Any, ...]) -> None:
    """Raise ModelError if the mean squared error, the loss without --task, is not meant for labels like these."""
    if not all(part.dtype.is_floating for part in tf.nest.flatten(spec[1])):
        types = ", ".join(part.dtype.name for part in tf.nest.flatten(spec[1]))
        raise ModelError(
            f"the labels are {types}, so the loss is not known: set --task to a function that returns loss and "
            "metrics, or compile the model"
        )


def check_fit(model: Any, batch: tuple[Any, ...], prepare: Callable[..., Any]) -> None:
    """Raise ModelError if a batch of this specification does not pass through the model, its loss and its metrics.

    Nothing is computed. `prepare` makes examples and labels for the model of it.
    """
    try:
        step = tf.function(lambda *batch: model.test_step(prepare(*batch)), autograph=False)
        step.get_concrete_function(*batch)
    except Exception as error:  # Keras and TensorFlow raise many types
        shapes = [str(keras.tree.map_structure(lambda part: tuple(part.shape), part)) for part in batch[1:3]]
        reason = " ".join(str(error).split())[:REASON_CHARACTERS]
        raise ModelError(
            f"the model, its loss and its metrics do not fit batches of examples {shapes[0]} and labels {shapes[1]}, "
            f"in which None is the batch size: {type(error).__name__}: {reason}"
        ) from error
