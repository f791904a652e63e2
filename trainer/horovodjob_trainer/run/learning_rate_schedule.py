"""The learning rate as a function of how far a run is."""

import math
from dataclasses import dataclass

from horovodjob_trainer.cli.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate over epochs, with warm-up and linear scaling (Goyal et al. 2017, arXiv:1706.02677).

    `base` is the rate of one rank, `steps_per_epoch` that of the run's first start.
    """

    base: float
    scaled: bool
    kind: str
    warmup_epochs: float
    epochs: int
    steps_per_epoch: int
    decay: float
    lr_steps: tuple[float, ...]
    lr_factor: float

    @classmethod
    def of(cls, run: Configuration, *, base: float, epochs: int, steps_per_epoch: int) -> "Schedule":
        """The schedule that the configuration asks for."""
        return cls(base, run.scale_learning_rate, run.schedule, run.warmup_epochs, epochs, steps_per_epoch,
                   run.decay, run.lr_steps, run.lr_factor)  # fmt: skip

    def rate(self, epoch: float, size: int) -> float:
        """The rate of the step that begins `epoch` epochs into the run, with `size` ranks."""
        return self.base * self._warmed(epoch, size if self.scaled else 1) * self._shape(epoch)

    def _warmed(self, epoch: float, size: int) -> float:
        # The last step of the warm-up trains with the full rate.
        done = epoch + 1 / self.steps_per_epoch
        if done >= self.warmup_epochs:
            return size
        return 1 + (size - 1) * done / self.warmup_epochs

    def _shape(self, epoch: float) -> float:
        if self.kind == "decay":
            return 1 / (1 + self.decay * epoch * self.steps_per_epoch)
        if self.kind == "step":
            return self.lr_factor ** sum(epoch >= boundary for boundary in self.lr_steps)
        if self.kind == "cosine":
            left = max(self.epochs - self.warmup_epochs, 1e-9)
            done = min(max((epoch - self.warmup_epochs) / left, 0), 1)
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1.0
