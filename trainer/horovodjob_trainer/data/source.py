"""The interface of data sets: examples with random access, and the data set of a run."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.order import Steps, Window

# The image (uint8) in the content of an image file, for the example with this position in the sequence of the job.
Decode = Callable[[bytes, int], npt.NDArray[np.uint8]]


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

    @property
    def readers(self) -> int:
        """Number of threads that only wait for files, in addition to those that compute."""

    def batches(self, rows: Any, *, batch: int, threads: int) -> Any:
        """Elements (position, examples, labels) from elements (position, rows), each with at most `batch` rows.

        Both are a tf.data.Dataset. `threads` examples are computed at the same time.
        """

    def training_batches(self, steps: Steps, *, threads: int, crop: bool = False) -> Any:
        """Elements (position, examples, labels) for these steps.

        With `crop`, a source of encoded images decodes a random part of each instead of its central square.
        """

    def name(self, row: int) -> str:
        """The file of this example, or its number."""

    def read_error(self, row: int) -> str | None:
        """One sentence with the file and the remedy if this example cannot be read, else None."""


class DamagedExamples:
    """The names of the damaged examples that this rank has read. Threads of input pipelines add to it."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._names)

    @property
    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._names)

    def recorder(self, name: Callable[[int], str]) -> Callable[[npt.NDArray[np.int64]], Any]:
        """A function that records the examples of the rows that it gets; `name` returns the name of a row."""

        def record(rows: npt.NDArray[np.int64]) -> Any:
            names = [name(int(row)) for row in rows]
            with self._lock:
                self._names.update(dict.fromkeys(names))
            return np.int64(len(names))

        return record


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
