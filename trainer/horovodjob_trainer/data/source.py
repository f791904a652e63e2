"""What a data set is to the rest of the trainer: examples that can be read in any order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Source(Protocol):
    """Examples with random access by row, read by TensorFlow operations that run on several threads at once."""

    @property
    def samples(self) -> int:
        """Number of examples."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example; height, width, channels for pictures."""

    @property
    def classes(self) -> int | None:
        """Number of classes; None where the labels are no classes, as in a regression."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the classes in the order of their labels, where the data has them."""

    @property
    def images(self) -> bool:
        """Whether examples are pictures of uint8, which can be augmented and are scaled to 0..1."""

    @property
    def keep(self) -> bool:
        """Whether what was read once is to be kept in memory: reading costs, and it fits."""

    @property
    def fingerprint(self) -> str:
        """A cheap identity: equal for the same data on every rank and in every attempt."""

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        """Examples and labels at these rows (int64, one dimension), as tensors of a graph."""

    def name(self, row: int) -> str:
        """What a person calls this example: its file, or its number."""

    def problem(self, row: int) -> str | None:
        """One sentence about an example that cannot be read, with its file and the remedy."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a run trains on and what it is tested with."""

    train: Source
    test: Source
    name: str
    remark: str = ""  # for the user: what of it is in memory, and why

    @property
    def fingerprint(self) -> str:
        """Identity of both parts: a run goes on only with the data that it began with."""
        return f"{self.name} train {self.train.fingerprint} test {self.test.fingerprint}"
