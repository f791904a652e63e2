"""Examples with any structure, from a tf.data.Dataset of the user that is read by index or from memory."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from horovodjob_trainer.data.arrays import eager_tensor
from horovodjob_trainer.data.order import Rows, Steps
from horovodjob_trainer.data.reading.example_reader import map_dataset

SAMPLED_ROWS = 16  # of which the fingerprint contains the values


@dataclass(frozen=True, eq=False)
class Elements:
    """A source over elements (example, label) or (example, label, weight), which are passed to the model unchanged.

    `spec` is that of one element and has fixed shapes. `read` returns a batch of elements, for their rows as a tensor,
    with graph operations. With `selected`, the source has only these rows.
    """

    spec: tuple[Any, ...]
    samples: int
    read: Callable[[Any], tuple[Any, ...]]
    fingerprint: str = ""
    selected: Rows | None = None
    classes = None
    class_names = None
    images = False
    readers = 0

    @property
    def shape(self) -> Any:
        """Shape of the example; a structure of shapes if an example has several parts."""
        import tensorflow as tf

        return tf.nest.map_structure(lambda part: tuple(part.shape), self.spec[0])

    def batches(self, rows: Any, *, batch: int, threads: int) -> Any:
        return map_dataset(rows, lambda position, rows: (position, *self.tensors(rows)), threads)

    def training_batches(self, steps: Steps, *, threads: int, crop: bool = False) -> Any:
        return self.batches(steps.rows(self.samples), batch=steps.batch, threads=threads)

    def tensors(self, rows: Any) -> tuple[Any, ...]:
        """The parts of the elements at these rows (int64, one dimension), as graph tensors."""
        import tensorflow as tf

        return self.read(rows if self.selected is None else tf.gather(self._selected, rows))

    def with_batch_size(self, elements: tuple[Any, ...], batch: int | None) -> tuple[Any, ...]:
        """The same batch with its static shape."""
        import tensorflow as tf

        def shaped(values: Any, part: Any) -> Any:
            return tf.ensure_shape(values, (batch, *part.shape))

        shapes: tuple[Any, ...] = tf.nest.map_structure(shaped, elements, self.spec)
        return shapes

    def name(self, row: int) -> str:
        return str(row if self.selected is None else self.selected[row])

    def read_error(self, row: int) -> str | None:
        return None

    def select(self, rows: Rows) -> Self:
        """The elements at these rows."""
        return replace(self, selected=rows, samples=len(rows))

    @cached_property
    def _selected(self) -> Any:
        return eager_tensor(self.selected)

    def with_fingerprint(self) -> Self:
        """The same elements, with a fingerprint of their number, types and shapes, and of the values of some."""
        import tensorflow as tf

        rows = np.unique(np.linspace(0, self.samples - 1, SAMPLED_ROWS).astype(np.int64))
        checksum = 0
        for part in tf.nest.flatten(self.tensors(tf.constant(rows))):
            values = part.numpy()
            content = b"\0".join(values.reshape(-1)) if values.dtype == object else values.tobytes()
            checksum = zlib.crc32(content, checksum)
        types = [f"{part.dtype.name}{tuple(part.shape)}" for part in tf.nest.flatten(self.spec)]
        return replace(self, fingerprint=f"{self.samples}x{' '.join(types)} {checksum:08x}")
