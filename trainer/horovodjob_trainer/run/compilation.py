"""The model ready to train: optimizer and loss as configured, or as its own function compiled it."""

from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.cli.configuration import Configuration

OPTIMIZERS = {
    "rmsprop": (keras.optimizers.RMSprop, {}),
    "sgd": (keras.optimizers.SGD, {}),
    "momentum": (keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (keras.optimizers.Adam, {}),
    "adamw": (keras.optimizers.AdamW, {}),
    "lamb": (keras.optimizers.Lamb, {}),
}


def compiled(model: Any, run: Configuration, shape: tuple[int, ...], classes: int | None) -> Any:
    """The model with an optimizer whose gradients are averaged over all ranks.

    A model that comes compiled keeps its loss, its metrics and its optimizer's settings.
    """
    if not model.built:  # a subclass of Model learns its shapes from the first call
        model(tf.zeros((1, *shape)))
    compression = getattr(hvd.Compression, run.compression)
    if model.compiled:
        if not hvd.is_distributed(model.optimizer):
            model.optimizer = hvd.DistributedOptimizer(model.optimizer, compression=compression)
    else:
        optimizer = hvd.DistributedOptimizer(_optimizer(run), compression=compression)
        loss, metrics = _loss(run, classes)
        model.compile(optimizer=optimizer, loss=loss, metrics=metrics, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def labels_as(run: Configuration, classes: int | None) -> Any:
    """What the labels of a batch become: one number for each class where they are smoothed."""
    if run.label_smoothing and classes is not None:
        return lambda examples, labels: (examples, tf.one_hot(labels, classes))
    return None


def _optimizer(run: Configuration) -> Any:
    kind, settings = OPTIMIZERS[run.optimizer]
    extra: dict[str, Any] = dict(settings)
    if run.clip_norm is not None:
        extra["global_clipnorm"] = run.clip_norm
    if run.accumulate > 1:
        extra["gradient_accumulation_steps"] = run.accumulate
    return kind(run.learning_rate, **extra)


def _loss(run: Configuration, classes: int | None) -> tuple[Any, list[str]]:
    if classes is None:
        return "mean_squared_error", ["mean_absolute_error"]
    if run.label_smoothing:
        return keras.losses.CategoricalCrossentropy(label_smoothing=run.label_smoothing), ["accuracy"]
    return "sparse_categorical_crossentropy", ["accuracy"]
