"""The optimizers that train a model, and their learning rates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.hvd.learning_rate import innermost
from horovodjob_trainer.hvd.model_optimizers import model_optimizers, used_optimizers
from horovodjob_trainer.run.optimization.compilation import base_learning_rate
from horovodjob_trainer.run.optimization.learning_rate import LearningRate, scaling_rule
from horovodjob_trainer.run.optimization.learning_rate_schedule import LearningRateSchedule


@dataclass(frozen=True, slots=True)
class TrainedOptimizer:
    """An optimizer, its learning rate on one rank (None for a schedule of its own) and the rule of its scaling."""

    optimizer: Any
    base_rate: float | None
    scaling: str

    @property
    def name(self) -> str:
        return str(innermost(self.optimizer).__class__.__name__)


def trained_optimizers(
    model: Any, configuration: Configuration, *, was_compiled: bool, batches: Callable[[], Any], prepare: Any
) -> tuple[TrainedOptimizer, ...]:
    """The optimizers of the compiled model that its training step uses, with all their variables.

    With several optimizers, the step is traced, because only the model knows which variables each of them trains.
    """
    optimizers = model_optimizers(model)
    if len(optimizers) > 1:
        step = tf.function(lambda *batch: model.train_step(prepare(*batch)), autograph=False)
        step.get_concrete_function(*batches().element_spec)
        optimizers = used_optimizers(model)
    return tuple(
        TrainedOptimizer(
            each,
            base_learning_rate(each, configuration, was_compiled=was_compiled),
            scaling_rule(each, configuration.learning_rate_scaling),
        )
        for each in optimizers
    )


class LearningRates:
    """The learning rates of all optimizers, with `size` ranks from now on."""

    def __init__(
        self, optimizers: Sequence[TrainedOptimizer], configuration: Configuration, state: RunState, size: int
    ) -> None:
        self.epoch_examples, self.size = state.epoch_examples, size
        self.schedules = [
            LearningRateSchedule.from_configuration(
                configuration,
                base=each.base_rate,
                scaling=each.scaling,
                epochs=state.epochs,
                first_size=state.first_size,
                steps_per_epoch=state.epoch_examples / (configuration.batch_size * state.first_size),
            )
            for each in optimizers
        ]
        before = max(state.position - configuration.batch_size * size, 0)
        self.rates = [
            LearningRate(each.optimizer, self._rate(schedule, before) if state.position else 0.0)
            for each, schedule in zip(optimizers, self.schedules, strict=True)
        ]

    @property
    def current(self) -> float:
        """The learning rate of the first optimizer, for reports."""
        return float(self.rates[0].optimizer.learning_rate)

    @property
    def velocity_factors(self) -> list[tuple[Any, Any]]:
        """Each optimizer with the factor of its velocities."""
        return [(each.optimizer, each.velocity_factor) for each in self.rates]

    def set(self, position: int) -> None:
        """Set the rates of the step at this position."""
        for schedule, rate in zip(self.schedules, self.rates, strict=True):
            rate.set(self._rate(schedule, position))

    def _rate(self, schedule: LearningRateSchedule, position: int) -> float:
        return schedule.rate(position / self.epoch_examples, self.size)
