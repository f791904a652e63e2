"""Compilation of the model with optimizer, loss and metrics."""

from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.run.loss import loss_and_metrics

OPTIMIZERS = {
    "rmsprop": (keras.optimizers.RMSprop, {}),
    "sgd": (keras.optimizers.SGD, {}),
    "momentum": (keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (keras.optimizers.Adam, {}),
    "adamw": (keras.optimizers.AdamW, {}),
    "lamb": (keras.optimizers.Lamb, {}),
}


def compile_model(model: Any, configuration: Configuration, shape: tuple[int, ...], classes: int | None) -> Any:
    """The model, compiled with an optimizer that averages the gradients over all ranks.

    A model that is already compiled keeps its loss, its metrics and the settings of its optimizer.
    """
    if not model.built:  # a subclass of Model determines its shapes in the first call
        model(tf.zeros((1, *shape)))
    compression = getattr(hvd.Compression, configuration.compression)
    if model.compiled:
        if not hvd.is_distributed(model.optimizer):
            model.optimizer = hvd.DistributedOptimizer(model.optimizer, compression=compression)
    else:
        optimizer = hvd.DistributedOptimizer(_build_optimizer(configuration), compression=compression)
        loss, metrics = loss_and_metrics(classes, configuration.label_smoothing)
        model.compile(optimizer=optimizer, loss=loss, metrics=metrics, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def _build_optimizer(configuration: Configuration) -> Any:
    optimizer_class, settings = OPTIMIZERS[configuration.optimizer]
    arguments: dict[str, Any] = dict(settings)
    if configuration.clip_norm is not None:
        arguments["global_clipnorm"] = configuration.clip_norm
    if configuration.accumulate > 1:
        arguments["gradient_accumulation_steps"] = configuration.accumulate
    return optimizer_class(configuration.learning_rate, **arguments)
