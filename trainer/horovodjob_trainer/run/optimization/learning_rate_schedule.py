"""The learning rate as a function of the epoch and the number of ranks."""

import math
from dataclasses import dataclass

from horovodjob_trainer.cli.configuration import Configuration


@dataclass(frozen=True, slots=True)
class LearningRateSchedule:
    """Learning rate over the epochs, with warm-up and scaling.

    `base` is the rate of one rank. The warm-up begins with `warmup_start` times this rate. `steps_per_epoch` is that of
    the first start of the run. Linear scaling is that of Goyal et al. 2017 (arXiv:1706.02677) for SGD. Scaling with the
    square root is that of Malladi et al. 2022 (arXiv:2205.10286) for adaptive optimizers.
    """

    base: float
    scaling: str
    kind: str
    warmup_epochs: float
    warmup_start: float
    epochs: int
    steps_per_epoch: float
    decay: float
    lr_steps: tuple[float, ...]
    lr_factor: float

    @classmethod
    def from_configuration(
        cls,
        configuration: Configuration,
        *,
        base: float | None,
        scaling: str,
        epochs: int,
        first_size: int,
        steps_per_epoch: float,
    ) -> "LearningRateSchedule":
        """The schedule that the configuration selects.

        Without `base`, the optimizer has its own schedule, and the result is the factor of its rate. A warm-up begins
        with --warmup-from, else with the rate of one rank or, if the first start of the run had this rate, with 0.
        """
        has_own, base = base is None, 1.0 if base is None else base
        start = 0.0 if scaling_factor(scaling, first_size) == 1 else 1.0
        if configuration.warmup_from is not None:
            start = configuration.warmup_from / base
        return cls(
            base=base,
            scaling=scaling,
            kind="constant" if has_own else configuration.schedule,
            warmup_epochs=configuration.warmup_epochs,
            warmup_start=start,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            decay=configuration.decay,
            lr_steps=configuration.lr_steps,
            lr_factor=configuration.lr_factor,
        )

    def rate(self, epoch: float, size: int) -> float:
        """The rate of the step that begins after `epoch` epochs, with `size` ranks."""
        return self.base * self._warmup_factor(epoch, scaling_factor(self.scaling, size)) * self._decay_factor(epoch)

    def _warmup_factor(self, epoch: float, full: float) -> float:
        # The last step of the warm-up has the full rate.
        done = epoch + 1 / self.steps_per_epoch
        if done >= self.warmup_epochs:
            return full
        return self.warmup_start + (full - self.warmup_start) * done / self.warmup_epochs

    def warmup_text(self, size: int) -> str:
        """The warm-up with `size` ranks, for the log."""
        first, last = self.base * self.warmup_start, self.base * scaling_factor(self.scaling, size)
        return f"Warm-up to epoch {self.warmup_epochs:g}: the learning rate rises from {first:g} to {last:g}"

    def _decay_factor(self, epoch: float) -> float:
        if self.kind == "decay":
            return 1 / (1 + self.decay * epoch * self.steps_per_epoch)
        if self.kind == "step":
            return self.lr_factor ** sum(epoch >= boundary for boundary in self.lr_steps)
        if self.kind == "cosine":
            remaining = max(self.epochs - self.warmup_epochs, 1e-9)
            done = min(max((epoch - self.warmup_epochs) / remaining, 0), 1)
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1.0


def scaling_factor(scaling: str, size: int) -> float:
    """Factor of the learning rate of one rank for `size` ranks."""
    return {"linear": float(size), "sqrt": math.sqrt(size), "none": 1.0}[scaling]
