"""Reads examples one by one from files in TensorFlow graphs, so that an error names the row of the example."""

import re
from collections.abc import Callable
from typing import Any

from horovodjob_trainer.data.reading.damaged import READ_FAILURE, or_blank, replace_damaged
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.errors import DataError


def read_rows(rows: Any, read: Callable[..., tuple[Any, Any]], *values: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Images (uint8) and labels of these rows, each read by `read(row, *values)` with its entry of each value.

    `read` uses graph operations only.

    If a read fails, the error contains the row: the error of TensorFlow contains neither the file nor the row.
    """
    import tensorflow as tf

    slices = tf.data.Dataset.from_tensor_slices((rows, *values))
    each = slices.map(lambda row, *entries: (row, *read(row, *entries))).ignore_errors()
    end = (tf.constant(-1, tf.int64), tf.zeros(shape, tf.uint8), tf.constant(0, tf.int64))
    examples = each.concatenate(tf.data.Dataset.from_tensors(end)).batch(tf.size(rows, tf.int64) + 1)
    found, images, labels = examples.get_single_element()
    count = tf.size(found) - 1
    first_failed = tf.argmin(tf.cast(found == tf.concat([rows, [-1]], 0)[: count + 1], tf.int32))
    failed_row = tf.gather(rows, tf.minimum(first_failed, tf.size(rows, tf.int64) - 1))
    with tf.control_dependencies([tf.debugging.Assert(count == tf.size(rows), [READ_FAILURE, failed_row])]):
        return tf.ensure_shape(images[:-1], (None, *shape)), tf.identity(labels[:-1])


def read_intact_rows(
    rows: Any,
    read: Callable[..., tuple[Any, Any]],
    *values: Any,
    shape: tuple[int, ...],
    record: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """The result of `read_rows`, in which an intact example replaces each damaged one, whose row is recorded."""
    import tensorflow as tf

    blank = (tf.zeros(shape, tf.uint8), tf.constant(0, tf.int64))

    def tolerant(row: Any, *entries: Any) -> Any:
        return row, *or_blank(read, blank, row, *entries)

    slices = map_dataset(tf.data.Dataset.from_tensor_slices((rows, *values)), tolerant, None)
    found, images, labels, is_intact = slices.batch(tf.size(rows, tf.int64)).get_single_element()
    images, labels = replace_damaged(found, images, labels, is_intact, record)
    return tf.ensure_shape(images, (None, *shape)), labels


def map_dataset(data: Any, function: Callable[..., Any], threads: int | None) -> Any:
    """A tf.data.Dataset with the result of the function for each element. The function uses graph operations only.

    With None for `threads`, it is called when the next element is required, and not before.

    AutoGraph converts Python's `if` and `for`. For functions without them, the conversion takes longer than tracing.
    """
    import tensorflow as tf

    return data.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=threads)


def data_error(error: Exception, source: Source) -> DataError | None:
    """The DataError for an error of TensorFlow if it concerns an example of this source, else None."""
    match = re.search(rf"{READ_FAILURE}\D*(\d+)", str(error))
    if match is None:
        return None
    row = int(match[1])
    return DataError(
        source.read_error(row) or f"{source.name(row)} could not be read at first, but now it can; check the share"
    )


def with_private_threads(data: Any, threads: int) -> Any:
    """The tf.data.Dataset with so many threads of its own, so that it never delays the operations of a step."""
    import tensorflow as tf

    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    options.deterministic = True
    return data.with_options(options)
