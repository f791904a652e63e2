"""The learning rate of the optimizer, with the correction of momentum after a change."""

import math
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.hvd.learning_rate import innermost

Schedule = keras.optimizers.schedules.LearningRateSchedule


class LearningRate:
    """Sets the learning rate. `velocity_factor` is the factor for the velocities before the next step.

    Velocities contain gradients times the previous rate (Goyal et al. 2017, arXiv:1706.02677, section 2.1). If the
    optimizer has a LearningRateSchedule, the rates are factors of that of the schedule.
    """

    def __init__(self, optimizer: Any, previous: float) -> None:
        self.optimizer = optimizer
        self._is_corrected = False
        schedule = own_schedule(optimizer)
        self._rate = previous if schedule is not None or not previous else _last_rate(optimizer, previous)
        self._factor = None if schedule is None else _scaled(schedule, previous or 1.0)
        with tf.device("CPU"):  # the host reads and writes it
            self.velocity_factor = tf.Variable(1.0, trainable=False)

    def set(self, rate: float) -> None:
        """Set the rate of the next step."""
        is_changed = rate != self._rate
        if is_changed or self._is_corrected:
            self.velocity_factor.assign(rate / self._rate if is_changed and self._rate else 1.0)
        if is_changed and self._factor is not None:
            self._factor.assign(rate)
        elif is_changed:
            self.optimizer.learning_rate = rate
        self._rate, self._is_corrected = rate, is_changed


def _last_rate(optimizer: Any, expected: float) -> float:
    """The rate of the last step, which a checkpoint contains: another one if settings or ranks have changed since."""
    last = float(optimizer.learning_rate)
    return last if last and not math.isclose(last, expected, rel_tol=1e-5) else expected  # it is a float32


def own_schedule(optimizer: Any) -> Any:
    """The LearningRateSchedule with which the optimizer was created, else None."""
    rate = innermost(optimizer)._learning_rate
    return rate if isinstance(rate, Schedule) else None


def scaling_rule(optimizer: Any, setting: str) -> str:
    """How the learning rate depends on the number of ranks: `linear`, `sqrt` or `none`."""
    if setting != "auto":
        return setting
    return "linear" if isinstance(innermost(optimizer), keras.optimizers.SGD) else "sqrt"


def _scaled(schedule: Any, factor: float) -> Any:
    """The variable by which the schedule object from now on multiplies its rate."""
    known = getattr(schedule, "_horovodjob_factor", None)
    if known is not None:  # a loop before the ranks changed
        known.assign(factor)
        return known
    base: Any = type(schedule)
    with tf.device("CPU"):
        variable = tf.Variable(factor, trainable=False)

    class Scaled(base):  # type: ignore[misc]
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            return base  # the class that Keras writes to saved files

        def __call__(self, step: Any) -> Any:
            rate = super().__call__(step)
            return rate * tf.cast(variable, rate.dtype)

    schedule._horovodjob_factor = variable
    object.__setattr__(schedule, "__class__", Scaled)
    return variable
