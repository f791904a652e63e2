"""The interface of data sets: examples with random access."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from horovodjob_trainer.data.order.window import Window
from horovodjob_trainer.data.reading.damaged import DamagedExamples

Decode = Callable[[Any, Any], Any]  # the image (uint8) in an encoded example, which has this position


class Source(Protocol):
    """Examples with random access by row. TensorFlow operations read them on several threads at the same time."""

    @property
    def samples(self) -> int:
        """Number of examples."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example; height, width and channels for images."""

    @property
    def classes(self) -> int | None:
        """Number of classes; None if the labels are not classes, as in a regression."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the classes in the order of their labels, if the data set has names."""

    @property
    def images(self) -> bool:
        """Whether examples are uint8 images, which can be augmented and are scaled to values from 0 to 1."""

    @property
    def fingerprint(self) -> str:
        """An identity that is cheap to compute: equal for the same data on every rank and in every attempt."""

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        """Examples and labels of these rows (int64, one dimension), as graph tensors."""

    def name(self, row: int) -> str:
        """The file of this example, or its number."""

    def read_error(self, row: int) -> str | None:
        """One sentence with the file and the remedy if this example cannot be read, else None."""


@runtime_checkable
class EncodedSource(Protocol):
    """A source that reads many rows faster than each for itself. Both methods use graph operations."""

    def contents(self, rows: Any) -> Any:
        """The encoded examples of these rows (int64, any shape), read in the order of the files."""

    def decode(self, rows: Any, contents: Any, positions: Any = None, decode: Decode | None = None) -> tuple[Any, Any]:
        """Examples and labels from the encoded examples of these rows (one dimension).

        `decode` replaces the decoding of the source and requires the positions of the rows.
        """


@dataclass(frozen=True, slots=True)
class Dataset:
    """The training examples and the test examples of a run."""

    train: Source
    test: Source
    name: str
    remark: str = ""  # for the user: whether the examples are in memory
    damaged: DamagedExamples | None = None  # with --skip-damaged
    window: Window | None = None  # for the windowed order of the training examples; None for the exact order

    @property
    def fingerprint(self) -> str:
        """Identity of both parts. A run resumes only with the data with which it started."""
        order = f" window {self.window.examples}" if self.window else ""
        return f"{self.name} train {self.train.fingerprint} test {self.test.fingerprint}{order}"
