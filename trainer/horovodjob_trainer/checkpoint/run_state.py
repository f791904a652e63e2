"""The state of a run that a checkpoint stores in addition to the variables of the model."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class RunState:
    """The state of a run, counted in examples and therefore independent of the number of ranks.

    The run has consumed `position` examples of the infinite sequence. An epoch has `epoch_examples` examples, one
    pass over the training data. The first start of the run had `first_size` ranks. `draws` contains the counters of
    the seed generators of the model. `unvalidated` contains the training metrics of an epoch that is complete but
    for its validation. The current pass over the data began with `streams` ranks, the first pass with `first_size`.
    `selection` is the metric by which `best_epoch` is the best, after `min` or `max`. `batches` contains a fingerprint
    of the last batch of each rank if a start must verify the position in the data. `ends` contains the lowest and the
    highest value of each metric in all epochs.
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
    streams: int = 0
    selection: str = ""
    batches: list[int] = field(default_factory=list)
    ends: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.streams = self.streams or self.first_size

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        # A step of many ranks can have more examples than an epoch, so the last step can pass the last epoch.
        return min(self.position // self.epoch_examples, self.epochs)

    @property
    def total(self) -> int:
        return self.epochs * self.epoch_examples

    def steps_in_epoch(self, job_batch: int) -> int:
        """Number of steps in the current epoch if each step takes `job_batch` examples.

        A step that contains the end of an epoch belongs to this epoch, so the next epoch can have a step less.
        """
        remaining_examples = (self.epoch + 1) * self.epoch_examples - self.position
        return self.step_in_epoch(job_batch) + -(-remaining_examples // job_batch)

    def steps_in_last_epoch(self, job_batch: int) -> int:
        """Number of steps in the last completed epoch."""
        end = -(-self.epoch * self.epoch_examples // job_batch)
        return max(end - -(-(self.epoch - 1) * self.epoch_examples // job_batch), 1)

    def step_in_epoch(self, job_batch: int) -> int:
        """Number of completed steps of the current epoch."""
        return (self.position - self.epoch * self.epoch_examples) // job_batch

    def advance(self, job_batch: int, ranks: int) -> None:
        """Record a step of these ranks, in which they consume `job_batch` examples."""
        before = self.position // self.epoch_examples
        self.position += job_batch
        self.step += 1
        if self.position // self.epoch_examples != before:
            self.streams = ranks

    def use_data(self, examples: int) -> None:
        """Continue with data of this number of training examples, at the same share of the epoch."""
        epoch, inside = divmod(self.position, self.epoch_examples)
        self.position = epoch * examples + inside * examples // self.epoch_examples
        self.epoch_examples = examples

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RunState":
        """The state in a JSON object, also of an earlier release. Raises ValueError or TypeError for other content."""
        names = {entry.name for entry in fields(cls)}
        if set(value) | {"unvalidated", "streams", "selection", "batches", "ends"} != names:
            raise ValueError("it does not contain the state of a run")
        return cls(**value)
