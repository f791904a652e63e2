"""Reads files ahead of their decoding, so that the latency of a share delays no step."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.reading.aligned_memory import allocate_aligned
from horovodjob_trainer.data.reading.damaged import READ_FAILURE, replace_damaged
from horovodjob_trainer.data.reading.example_reader import map_dataset
from horovodjob_trainer.data.reading.image_decoding import image_or_none
from horovodjob_trainer.data.reading.image_pixels import Pixels
from horovodjob_trainer.data.source import DamagedExamples, Decode

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# A reader waits for the share and does not compute, so their number follows the latency and not the cores: 32 readers
# read 3,200 files a second at 10 ms for each. Memory is bounded by the images of the batches that are read.
READERS = 32


class FileSource(Protocol):
    """Images in files of their own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""

    @property
    def damaged(self) -> DamagedExamples | None:
        """Where damaged examples are recorded; None if one is an error."""

    def name(self, row: int) -> str:
        """The file of this example."""

    def content(self, row: int) -> tuple[bytes, int]:
        """Content of the file of this example, and its label. Raises OSError."""


def read_ahead(
    rows: Any,
    source: FileSource,
    decode: Decode,
    *,
    batch: int,
    threads: int,
    readers: int = READERS,
) -> Any:
    """Elements (first, images, labels) from elements (first, rows) in their order.

    Each has at most `batch` rows. `readers` files are read at the same time, and `threads` images are decoded at the
    same time. If a read fails, the error contains the row.
    """
    import tensorflow as tf

    reading = ThreadPoolExecutor(readers, "read")
    decoding = ThreadPoolExecutor(threads, "decode")

    def content_and_label(row: int) -> tuple[bytes, int]:
        try:
            return source.content(row)
        except OSError:
            return b"", 0

    def load(first: np.int64, rows: Rows) -> tuple[Rows, Pixels, Rows, Flags]:
        images = allocate_aligned((len(rows), *source.shape), np.uint8)
        labels, are_intact = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        contents = [reading.submit(content_and_label, row) for row in rows.tolist()]

        def decode_part(part: int) -> None:
            for index in range(part, len(contents), threads):
                content, labels[index] = contents[index].result()
                pixels = image_or_none(decode, content, int(first) + index)
                images[index] = 0 if pixels is None else pixels
                are_intact[index] = pixels is not None

        # One call for each thread: a call for each image would cost a tenth of its decoding.
        list(decoding.map(decode_part, range(threads)))
        return rows, images, labels, are_intact

    def read(first: Any, rows: Any) -> Any:
        values = tf.numpy_function(load, [first, rows], (tf.int64, tf.uint8, tf.int64, tf.bool), stateful=False)
        rows, images, labels, are_intact = (
            tf.ensure_shape(value, (None, *shape))
            for value, shape in zip(values, ((), source.shape, (), ()), strict=True)
        )
        if source.damaged is not None:
            record = source.damaged.recorder(source.name)
            return first, *replace_damaged(rows, images, labels, are_intact, record)
        failed = tf.gather(rows, tf.argmax(tf.cast(~are_intact, tf.int32)))
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(are_intact), [READ_FAILURE, failed])]):
            return first, tf.identity(images), tf.identity(labels)

    return map_dataset(rows, read, -(-readers // batch) + 1)
