"""The state of a run that a checkpoint stores in addition to the variables of the model."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class RunState:
    """The state of a run, counted in examples and therefore independent of the number of ranks.

    The run has consumed `position` examples of the infinite sequence. An epoch has `epoch_examples` examples. The
    first start of the run, with `first_size` ranks, sets `epoch_examples` and `epochs`. `draws` contains the counters
    of the seed generators of the model. `unvalidated` contains the training metrics of an epoch that is complete but
    for its validation.
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
    unvalidated: dict[str, float] | None = None

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self.position // self.epoch_examples

    @property
    def total(self) -> int:
        return self.epochs * self.epoch_examples

    def steps_in_epoch(self, job_batch: int) -> int:
        """Number of steps in an epoch if each step takes `job_batch` examples."""
        return -(-self.epoch_examples // job_batch)

    def step_in_epoch(self, job_batch: int) -> int:
        return (self.position - self.epoch * self.epoch_examples) // job_batch

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RunState":
        """The state in a JSON object, also of an earlier release. Raises ValueError or TypeError for other content."""
        names = {entry.name for entry in fields(cls)}
        if set(value) | {"unvalidated"} != names:
            raise ValueError("it does not contain the state of a run")
        return cls(**value)
