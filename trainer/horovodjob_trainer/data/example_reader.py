"""Reading examples one by one from files inside TensorFlow, so that a bad one is known by its row."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from horovodjob_trainer.data.arrays import Arrays, aligned
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.errors import DataError

BATCH = 64
_UNREADABLE = "no example can be read from row"


def rows_read(rows: Any, read: Callable[[Any], tuple[Any, Any]], *, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Pictures (uint8) and labels of these rows, each read by `read(row)`; graph operations only.

    Where one fails, the error says which: TensorFlow's own names neither the file nor the row.
    """
    import tensorflow as tf

    each = tf.data.Dataset.from_tensor_slices(rows).map(lambda row: (row, *read(row))).ignore_errors()
    end = (tf.constant(-1, tf.int64), tf.zeros(shape, tf.uint8), tf.constant(0, tf.int64))
    some = each.concatenate(tf.data.Dataset.from_tensors(end)).batch(tf.size(rows, tf.int64) + 1)
    found, pictures, labels = some.get_single_element()
    count = tf.size(found) - 1
    first_lost = tf.argmin(tf.cast(found == tf.concat([rows, [-1]], 0)[: count + 1], tf.int32))
    lost = tf.gather(rows, tf.minimum(first_lost, tf.size(rows, tf.int64) - 1))
    with tf.control_dependencies([tf.debugging.Assert(count == tf.size(rows), [_UNREADABLE, lost])]):
        return tf.ensure_shape(pictures[:-1], (None, *shape)), tf.identity(labels[:-1])


def mapped(data: Any, function: Callable[..., Any], threads: int) -> Any:
    """A tf.data.Dataset with the function's value for each element; graph operations only.

    AutoGraph is for Python's own `if` and `for`, and rewriting functions without them takes longer than tracing them.
    """
    import tensorflow as tf

    return data.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=threads)


def explained(error: Exception, source: Source) -> DataError | None:
    """What an error of TensorFlow says about an example of this source, if it is about one."""
    found = re.search(rf"{_UNREADABLE}\D*(\d+)", str(error))
    if found is None:
        return None
    row = int(found[1])
    return DataError(
        source.problem(row) or f"{source.name(row)} could not be read at first, but now it can; look at the share"
    )


def in_memory(source: Source, *, threads: int) -> Arrays:
    """The same examples, read once into memory on several threads."""
    import tensorflow as tf

    examples = aligned((source.samples, *source.shape), np.uint8)
    labels = aligned((source.samples,), np.int64)
    batches = mapped(tf.data.Dataset.range(source.samples).batch(BATCH), source.tensors, threads)
    start = 0
    try:
        for pictures, numbers in batches.prefetch(2):
            end = start + len(numbers)
            examples[start:end], labels[start:end] = pictures, numbers
            start = end
    except tf.errors.OpError as error:
        raise explained(error, source) or error from error
    return Arrays(examples, labels, source.classes, source.class_names, source.fingerprint)


def decoded(content: Any, size: int) -> Any:
    """The picture in a file's content, as `size` x `size` x 3 bytes: its middle square, scaled."""
    import tensorflow as tf

    picture = tf.io.decode_image(content, channels=3, expand_animations=False)
    height, width = tf.shape(picture)[0], tf.shape(picture)[1]
    side = tf.minimum(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = picture[top : top + side, left : left + side]

    def scaled() -> Any:
        pixels = tf.image.resize(square, (size, size), antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)

    return tf.ensure_shape(tf.cond(side == size, lambda: square, scaled), (size, size, 3))
