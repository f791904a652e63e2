"""Compilation of the model with optimizer, loss and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from horovodjob_trainer import hvd
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import ModelError
from horovodjob_trainer.hvd.learning_rate import innermost
from horovodjob_trainer.hvd.model_optimizers import model_optimizers
from horovodjob_trainer.run.optimization.lars import LARS
from horovodjob_trainer.run.optimization.learning_rate import own_schedule
from horovodjob_trainer.run.optimization.loss import CATEGORICAL, loss_and_metrics, loss_name
from horovodjob_trainer.run.optimization.task import task_loss_and_metrics

OPTIMIZERS = {
    "rmsprop": (keras.optimizers.RMSprop, {}),
    "sgd": (keras.optimizers.SGD, {}),
    "momentum": (keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (keras.optimizers.Adam, {}),
    "adamw": (keras.optimizers.AdamW, {}),
    "lamb": (keras.optimizers.Lamb, {}),
    "lars": (LARS, {}),
}
# A compiled model brings these itself. The second group applies to a model that brings a rate without a schedule.
OF_COMPILED_MODEL = (
    "optimizer", "momentum", "weight-decay", "learning-rate", "clip-norm", "accumulate", "label-smoothing", "ema",
    "task",
)  # fmt: skip
OF_SCHEDULE = ("schedule", "decay", "lr-steps", "lr-factor", "warmup-from")


@dataclass(frozen=True, slots=True)
class CompileConfig:
    """The arguments of `compile` that Keras saves with a model.

    Keras removes the optimizer from `config` when it saves an .h5 file, so a .keras file that it saves later would have
    no optimizer. Here, `config` is a copy.
    """

    arguments: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.arguments)

    def serialize(self) -> Any:
        return keras.saving.serialize_keras_object(self.config)


def compile_model(model: Any, configuration: Configuration, classes: int | None) -> None:
    """Compile the built model with an optimizer that averages the gradients over all ranks.

    A model that is already compiled keeps its loss, its metrics and its optimizer. Raises ModelError if a setting
    contradicts them.
    """
    compression = getattr(hvd.Compression, configuration.compression)
    if model.compiled:
        _check_compiled_model(model, configuration)
        for optimizer in model_optimizers(model):
            if not hvd.is_distributed(optimizer):
                hvd.DistributedOptimizer(optimizer, compression=compression)  # it remains the same object
    else:
        _check_classes(configuration, classes)
        optimizer = _build_optimizer(configuration)
        # Decay of biases and of scales reduces the accuracy and regularizes nothing (Goyal et al. 2017, section 5.1).
        optimizer.exclude_from_weight_decay([v for v in model.trainable_variables if len(v.shape) <= 1])
        optimizer = hvd.DistributedOptimizer(optimizer, compression=compression)
        loss, metrics = loss_and_metrics(
            classes, configuration.label_smoothing, one_hot=bool(configuration.mixup or configuration.cutmix)
        )
        if configuration.task is not None:
            loss, metrics = task_loss_and_metrics(configuration.task, classes)
        model.compile(optimizer=optimizer, loss=loss, metrics=metrics, jit_compile=False)
        _build_metrics(model, classes)
    if hasattr(model, "_compile_config"):
        model._compile_config = CompileConfig(model._compile_config.config)
    if len(model_optimizers(model)) == 1:
        model.optimizer.build(model.trainable_variables)


def _build_metrics(model: Any, classes: int | None) -> None:
    """Create the variables of the metrics: TensorFlow traces a step twice if they are created in its first trace."""
    outputs: Sequence[Any] = getattr(model, "outputs", None) or ()
    if classes is not None and len(outputs) == 1:
        is_one_hot = loss_name(model) == CATEGORICAL
        labels = keras.KerasTensor((None, classes), "float32") if is_one_hot else keras.KerasTensor((None,), "int64")
        model._compile_metrics.build(labels, outputs[0])


def base_learning_rate(optimizer: Any, configuration: Configuration, *, was_compiled: bool) -> float | None:
    """The learning rate of one rank; None if the optimizer has a schedule of its own."""
    if own_schedule(optimizer) is not None:
        return None
    return float(optimizer.learning_rate) if was_compiled else configuration.learning_rate


def _check_compiled_model(model: Any, configuration: Configuration) -> None:
    name = configuration.model
    for setting in ("mixup", "cutmix"):
        if getattr(configuration, setting) is not None and loss_name(model) != CATEGORICAL:
            raise ModelError(
                f"--{setting} mixes labels, which the loss {loss_name(model)} of {name} does not accept: remove it, or "
                "compile the model with keras.losses.CategoricalCrossentropy()"
            )
    explicit = [setting for setting in OF_COMPILED_MODEL if setting in configuration.explicit]
    if "label-smoothing" in explicit and loss_name(model) != CATEGORICAL:
        raise ModelError(
            f"--label-smoothing does not apply to the loss {loss_name(model)} of {name}: remove it, or compile the "
            "model with keras.losses.CategoricalCrossentropy(label_smoothing=...)"
        )
    if explicit:
        raise ModelError(
            f"{name} returns a compiled model, which keeps its optimizer and its loss, so --{explicit[0]} would have "
            "no effect: remove the setting, or return the model without compile()"
        )
    for optimizer in model_optimizers(model):
        _check_own_rate(optimizer, configuration)


def _check_own_rate(optimizer: Any, configuration: Configuration) -> None:
    name, schedule = configuration.model, own_schedule(optimizer)
    explicit = [setting for setting in OF_SCHEDULE if setting in configuration.explicit]
    if configuration.warmup_from == 0 and "warmup-from" in explicit:  # is 0 times any schedule
        explicit.remove("warmup-from")
    if schedule is not None and explicit:
        raise ModelError(
            f"the optimizer of {name} has the learning rate schedule {type(schedule).__name__}, which --{explicit[0]} "
            "contradicts: remove the setting, or create the optimizer with a number as learning rate"
        )
    if callable(innermost(optimizer)._learning_rate) and schedule is None:
        raise ModelError(
            f"the optimizer of {name} has a function as learning rate, which cannot be scaled: use a number or a "
            "keras.optimizers.schedules.LearningRateSchedule"
        )


def _check_classes(configuration: Configuration, classes: int | None) -> None:
    if classes == 1 and configuration.task is None:
        raise ModelError(
            "all labels are 0, and a classification needs at least two classes: check the labels, or make them numbers "
            "with a fraction for a regression"
        )
    used = {"label-smoothing": configuration.label_smoothing, "mixup": configuration.mixup,
            "cutmix": configuration.cutmix}  # fmt: skip
    for setting, value in used.items():
        if value and classes is None:
            raise ModelError(f"--{setting} needs classes, and the labels are not classes; remove it")


def _build_optimizer(configuration: Configuration) -> Any:
    optimizer_class, settings = OPTIMIZERS[configuration.optimizer]
    arguments: dict[str, Any] = dict(settings)
    if configuration.momentum is not None:
        arguments["momentum"] = configuration.momentum
    if configuration.weight_decay is not None:
        arguments["weight_decay"] = configuration.weight_decay
    if configuration.clip_norm is not None:
        arguments["global_clipnorm"] = configuration.clip_norm
    if configuration.ema is not None:
        arguments |= {"use_ema": True, "ema_momentum": configuration.ema}
    if configuration.accumulate > 1:
        arguments["gradient_accumulation_steps"] = configuration.accumulate
    return optimizer_class(configuration.learning_rate, **arguments)
