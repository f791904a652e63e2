"""Examples in arrays in memory."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.order import Steps
from horovodjob_trainer.data.reading.aligned_memory import ALIGNMENT_BYTES, allocate_aligned
from horovodjob_trainer.data.reading.example_reader import map_dataset
from horovodjob_trainer.errors import DataError


@dataclass(frozen=True, eq=False)
class Arrays:
    """A source over two arrays of equal length. TensorFlow uses aligned arrays without a copy."""

    examples: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    classes: int | None
    class_names: Sequence[str] | None = None
    origin: str = ""  # the fingerprint of the source of these arrays
    readers = 0

    @property
    def samples(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.examples.shape[1:]

    @property
    def images(self) -> bool:
        return is_image(self.examples.dtype, self.shape)

    @property
    def fingerprint(self) -> str:
        return self.origin or f"{self.samples}x{self.shape} {zlib.crc32(self.labels.tobytes()):08x}"

    def batches(self, rows: Any, *, batch: int, threads: int) -> Any:
        return map_dataset(rows, lambda position, rows: (position, *self.tensors(rows)), threads)

    def training_batches(self, steps: Steps, *, threads: int, crop: bool = False) -> Any:
        return self.batches(steps.rows(self.samples), batch=steps.batch, threads=threads)

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        """Examples and labels of these rows (int64, one dimension), as graph tensors."""
        import tensorflow as tf

        examples, labels = self._tensors
        return tf.gather(examples, rows), tf.gather(labels, rows)

    def name(self, row: int) -> str:
        return str(row)

    def read_error(self, row: int) -> str | None:
        return None

    def with_classes(self, classes: int | None) -> Self:
        """The same examples with this number of classes."""
        return replace(self, classes=classes)

    def select(self, rows: npt.NDArray[np.int64]) -> Self:
        """The examples at these rows."""
        return replace(self, examples=aligned_copy(self.examples[rows]), labels=aligned_copy(self.labels[rows]))

    @cached_property
    def _tensors(self) -> tuple[Any, Any]:
        return eager_tensor(self.examples), eager_tensor(self.labels)


def is_image(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bool:
    """Whether an example of this type and shape is an image: uint8 with height, width and 1, 3 or 4 channels."""
    return np.dtype(dtype) == np.uint8 and len(shape) == 3 and shape[2] in (1, 3, 4)


def aligned_copy(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """A copy of the values in memory that TensorFlow can use without another copy."""
    array = np.asarray(values)
    copy = allocate_aligned(array.shape, dtype or array.dtype)
    copy[...] = array
    return copy


def class_count(*labels: npt.NDArray[Any]) -> int | None:
    """Number of classes of integer labels, which are counted from 0; None for other labels."""
    if any(part.dtype.kind not in "iu" or part.ndim != 1 for part in labels):
        return None
    return max(int(part.max(initial=-1)) for part in labels) + 1


def convert_labels(values: npt.NDArray[Any], *, name: str) -> npt.NDArray[Any]:
    """Labels as int64 (classes) or float32 (others). Raises DataError with `name` if they are invalid."""
    labels = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if labels.dtype.kind in "iub":
        labels = aligned_copy(labels, np.int64)
        if labels.ndim == 1 and labels.size and labels.min() < 0:
            raise DataError(f"{name} contains the label {labels.min()}; number the classes from 0")
        return labels if labels.ndim == 1 else aligned_copy(labels, np.float32)
    if labels.dtype.kind != "f":
        raise DataError(f"{name} has the type {labels.dtype}; use numbers")
    if not np.isfinite(labels).all():
        row = int(np.argwhere(~np.isfinite(labels))[0][0])
        raise DataError(f"{name} contains {labels[row]} in row {row}; each example needs a finite label")
    return aligned_copy(labels, np.float32)


def eager_tensor(values: Any) -> Any:
    """An eager tensor in the memory of the host, even within a graph function. Aligned arrays are not copied."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        if isinstance(values, np.ndarray) and values.size and _is_usable_without_copy(values):
            return tf.experimental.dlpack.from_dlpack(values.__dlpack__())
        return tf.constant(values)


def _is_usable_without_copy(array: npt.NDArray[Any]) -> bool:
    return array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT_BYTES == 0
