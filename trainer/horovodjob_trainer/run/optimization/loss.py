"""Losses and metrics of models, and the encoding of labels that a loss requires."""

from typing import Any

import keras
import tensorflow as tf

CATEGORICAL = "categorical_crossentropy"  # the name of the loss that requires one-hot labels
TOP = 5


def loss_and_metrics(classes: int | None, label_smoothing: float, *, one_hot: bool = False) -> tuple[Any, list[Any]]:
    """The loss and the metrics of the trainer: for labels of so many classes or, with None, for a regression.

    Label smoothing requires one-hot labels too.
    """
    if classes is None:
        return "mean_squared_error", ["mean_absolute_error"]
    if not (label_smoothing or one_hot):
        return "sparse_categorical_crossentropy", sparse_metrics(classes)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=label_smoothing)
    top = [keras.metrics.TopKCategoricalAccuracy(k=TOP, name=f"top_{TOP}_accuracy")] if classes > TOP else []
    return loss, ["accuracy", *top]


def sparse_metrics(classes: int) -> list[Any]:
    """The share of examples whose label is the most probable class, and that of labels among the five most probable.

    With five classes or fewer, the latter is always 1 and is left out.
    """
    if classes <= TOP:
        return ["accuracy"]
    return ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(k=TOP, name=f"top_{TOP}_accuracy")]


def loss_name(model: Any) -> str:
    """Name of the loss of a compiled model, which is a name, a function or an object."""
    loss = model.loss
    return loss if isinstance(loss, str) else str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))


def label_encoding(model: Any, classes: int | None) -> Any:
    """The function that encodes the labels of a batch as one-hot vectors if the loss of the model requires it."""
    if classes is not None and loss_name(model) == CATEGORICAL:
        return lambda examples, labels: (examples, tf.one_hot(labels, classes))
    return None
