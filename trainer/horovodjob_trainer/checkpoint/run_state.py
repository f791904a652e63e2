"""Where a run is: all that decides how it goes on, besides the variables of its model."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class RunState:
    """Counted in examples, so that it means the same for any number of ranks.

    `position` examples of the endless sequence are consumed; an epoch is `epoch_examples` of them, an amount that the
    first start of the run, with `first_size` ranks, fixes together with `epochs`. `draws` are the counters of the
    model's random seeds.
    """

    epochs: int
    epoch_examples: int
    first_size: int
    position: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    stopped: bool = False
    draws: list[int] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """Epochs that are complete."""
        return self.position // self.epoch_examples

    @property
    def total(self) -> int:
        return self.epochs * self.epoch_examples

    def steps_in_epoch(self, job_batch: int) -> int:
        """Steps of a whole epoch when each takes `job_batch` examples."""
        return -(-self.epoch_examples // job_batch)

    def step_in_epoch(self, job_batch: int) -> int:
        return (self.position - self.epoch * self.epoch_examples) // job_batch

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RunState":
        """Raises ValueError or TypeError for what is no state."""
        names = {entry.name for entry in fields(cls)}
        if set(value) != names:
            raise ValueError("it holds no state of a run")
        return cls(**value)
