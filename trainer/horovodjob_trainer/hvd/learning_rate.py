"""Keras callbacks that set the learning rate."""

from collections.abc import Callable
from typing import Any

import keras

from horovodjob_trainer.hvd.exchange import exchange


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to `initial_lr` times `multiplier(epoch)` from `start_epoch` up to `end_epoch`.

    With `staircase`, it changes once per epoch; otherwise it changes before every batch, and the argument of the
    multiplier has a fractional part. A number as multiplier is the factor per epoch of an exponential decay.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError(f"{type(self).__name__} needs initial_lr")
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = float(multiplier)
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.epoch = 0
        self._rate: float | None = None  # of the last batch; to ask the optimizer would wait for the device

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
        if not self.steps_per_epoch and not self.staircase:
            raise ValueError(f"{type(self).__name__} cannot determine the number of steps; set steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch, self._rate = epoch, None  # another callback may have changed the rate

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.epoch < self.start_epoch or (self.end_epoch is not None and self.epoch >= self.end_epoch):
            return
        if not self.staircase and self.steps_per_epoch:
            self._set(self.initial_lr * self.multiplier(self.epoch + batch / self.steps_per_epoch))
        elif batch == 0:
            self._set(self.initial_lr * self.multiplier(self.epoch))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, rate: float) -> None:
        optimizer = self.model.optimizer
        before = float(optimizer.learning_rate) if self._rate is None else self._rate
        self._rate = rate
        if rate == before:
            return
        optimizer.learning_rate = rate
        # Velocities contain gradients times the old rate (Goyal et al. 2017, arXiv:1706.02677, section 2.1).
        if self.momentum_correction and before:
            for velocity in optimizer_velocities(optimizer):
                velocity.assign(velocity * (rate / before))


def innermost(optimizer: Any) -> Any:
    """The optimizer without its loss scaling."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def optimizer_velocities(optimizer: Any) -> list[Any]:
    """The variables of a built optimizer that contain gradients times the learning rate of their step."""
    optimizer = innermost(optimizer)
    if not getattr(optimizer, "momentum", None) or not optimizer.built:
        return []
    if isinstance(optimizer, keras.optimizers.SGD):
        return list(optimizer.momentums)
    return list(optimizer._momentums) if isinstance(optimizer, keras.optimizers.RMSprop) else []


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Increases the learning rate with each batch of `warmup_epochs`, from `initial_lr` / ranks to `initial_lr`."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose
        super().__init__(
            initial_lr,
            self._warmup_factor,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )

    def _warmup_factor(self, epoch: float) -> float:
        # The last batch of the warm-up has the full rate.
        done = (epoch + 1 / (self.steps_per_epoch or 1)) / self.warmup_epochs
        size: int = exchange.size()
        return (1 + (size - 1) * min(done, 1.0)) / size

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.warmup_epochs - 1 and self.verbose > 0 and exchange.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"Epoch {epoch + 1}: warm-up of the learning rate ended at {rate:g}", flush=True)
