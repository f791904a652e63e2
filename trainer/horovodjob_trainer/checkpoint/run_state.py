"""The state of a run that a checkpoint stores in addition to the variables of the model."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

# A checkpoint of an earlier release does not contain them.
LATER_FIELDS = {"unvalidated", "streams", "selection", "ends", "order", "rates", "callbacks"}


@dataclass(slots=True)
class RunState:
    """The state of a run, counted in examples and therefore independent of the number of ranks.

    The run has consumed `position` examples of the infinite sequence. An epoch has `epoch_examples` examples, one pass
    over the training data. The first start of the run had `first_size` ranks. `draws` contains the counters of the
    seed generators of the model. `unvalidated` contains the training metrics of an epoch that is complete but for
    its validation. `streams` is the number of ranks at the start of the current pass over the data. `selection` is
    the metric by which `best_epoch` is the best, after `min` or `max`. `order` contains what each rank has read, by
    which a later start of a script verifies the order of its data. `rates` contains the initial loss scale and the
    learning rate with which the script has started, of each optimizer. `callbacks` contains the states of the
    callbacks of each rank, and `arrays` the arrays in those of rank 0, which a checkpoint stores beside the other
    values. `ends` contains the lowest and the highest value of each metric in all epochs.
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
    ends: dict[str, list[float]] = field(default_factory=dict)
    order: list[list[int]] = field(default_factory=list)
    rates: list[float | None] = field(default_factory=list)
    callbacks: list[dict[str, Any]] = field(default_factory=list)
    arrays: Mapping[str, Any] = field(default_factory=dict)

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

    def place(self, job_batch: int) -> str:
        """The completed epochs and steps, for messages."""
        step = self.step_in_epoch(job_batch)
        steps = f" and {step} step{'' if step == 1 else 's'}" if step else ""
        return f"epoch {self.epoch}{steps}"

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

    def snapshot(self) -> "RunState":
        """A copy, in which the arrays are the same: nothing changes their values."""
        return replace(copy.deepcopy(replace(self, arrays={})), arrays=self.arrays)

    def to_json(self) -> dict[str, Any]:
        """The state without the arrays."""
        value = asdict(replace(self, arrays={}))
        del value["arrays"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RunState":
        """The state in a JSON object, also of an earlier release. Raises ValueError or TypeError for other content."""
        names = {entry.name for entry in fields(cls)} - {"arrays"}
        if set(value) | LATER_FIELDS != names:
            raise ValueError("it does not contain the state of a run")
        return cls(**value)
