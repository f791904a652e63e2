"""Reads files ahead of their decoding, so that the latency of a share delays no step."""

from typing import Any, Protocol

from horovodjob_trainer.data.reading.damaged import READ_FAILURE, or_blank, replace_damaged
from horovodjob_trainer.data.reading.example_reader import map_dataset
from horovodjob_trainer.data.source import DamagedExamples, Decode

# A reader waits for the share and does not compute, so their number follows the latency and not the cores: 32 readers
# read 3,200 files a second at 10 ms for each. Memory is bounded by so many encoded images.
READERS = 32


class FileSource(Protocol):
    """Images in files of their own. Its methods use graph operations."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""

    @property
    def damaged(self) -> DamagedExamples | None:
        """Where damaged examples are recorded; None if one is an error."""

    def name(self, row: int) -> str:
        """The file of this example."""

    def content(self, row: Any) -> tuple[Any, Any]:
        """Content of the file of this example, and its label."""


def read_ahead(
    rows: Any,
    source: FileSource,
    decode: Decode,
    *,
    batch: int,
    threads: int,
    readers: int = READERS,
) -> Any:
    """Elements (first, images, labels) from elements (first, rows), each with at most `batch` rows, in their order.

    `readers` files are read at the same time, and `threads` images are decoded at the same time. If a read fails, the
    error contains the row.
    """
    import tensorflow as tf

    def separate(first: Any, rows: Any) -> Any:
        """The rows one by one, and a mark at their end. Each has its index, and the row before it."""
        count = tf.size(rows, tf.int64)
        indexes = tf.range(count + 1)
        mark = tf.constant([-1], tf.int64)
        before, after = tf.concat([mark, rows], 0), tf.concat([rows, mark], 0)
        return tf.data.Dataset.from_tensor_slices((indexes, before, after, first + indexes))

    def read(index: Any, before: Any, row: Any, position: Any) -> Any:
        nothing = tf.constant(""), tf.constant(-1, tf.int64)
        content, label = tf.cond(row < 0, lambda: nothing, lambda: source.content(row))
        return index, before, row, position, content, label

    def decode_content(index: Any, before: Any, row: Any, position: Any, content: Any, label: Any) -> Any:
        blank = tf.zeros(source.shape, tf.uint8)
        pixels = tf.cond(row < 0, lambda: blank, lambda: decode(content, position))
        return index, before, position, tf.ensure_shape(pixels, source.shape), label

    def check(indexes: Any, before: Any, positions: Any, images: Any, labels: Any) -> Any:
        # An example that cannot be read is missing, and the mark is not: a batch without all indexes is incomplete.
        is_wrong = indexes != tf.range(tf.size(indexes, tf.int64))
        failed = tf.gather(before, tf.argmax(tf.cast(is_wrong, tf.int32)))
        with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(is_wrong), [READ_FAILURE, failed])]):
            return positions[0], images[:-1], labels[:-1]

    def read_tolerantly(index: Any, before: Any, row: Any, position: Any) -> Any:
        nothing = tf.constant(""), tf.constant(0, tf.int64)
        values = tf.cond(row < 0, lambda: (*nothing, True), lambda: or_blank(source.content, nothing, row))
        return index, row, position, *values

    def decode_tolerantly(index: Any, row: Any, position: Any, content: Any, label: Any, is_intact: Any) -> Any:
        blank = tf.zeros(source.shape, tf.uint8)

        def image(content: Any, position: Any) -> Any:
            return (decode(content, position),)

        pixels, is_image = tf.cond(
            (row < 0) | ~is_intact, lambda: (blank, row < 0), lambda: or_blank(image, (blank,), content, position)
        )
        return row, position, tf.ensure_shape(pixels, source.shape), label, is_image

    def fill(rows: Any, positions: Any, images: Any, labels: Any, is_intact: Any) -> Any:
        assert source.damaged is not None
        record = source.damaged.recorder(source.name)
        return positions[0], *replace_damaged(rows[:-1], images[:-1], labels[:-1], is_intact[:-1], record)

    each = rows.flat_map(tf.autograph.experimental.do_not_convert(separate))
    if source.damaged is not None:
        images = map_dataset(map_dataset(each, read_tolerantly, readers), decode_tolerantly, threads)
        return images.batch(batch + 1).map(tf.autograph.experimental.do_not_convert(fill))
    images = map_dataset(map_dataset(each, read, readers), decode_content, threads).ignore_errors()
    return images.batch(batch + 1).map(tf.autograph.experimental.do_not_convert(check))
