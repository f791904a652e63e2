"""The replacement of damaged examples by others of their batches, for --skip-damaged."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

READ_FAILURE = "no example can be read from row"


def or_blank(function: Callable[..., Any], blank: Sequence[Any], *arguments: Any) -> tuple[Any, ...]:
    """The results of a function of graph operations and true or, if it fails, the blank values and false."""
    import tensorflow as tf

    def attempt(*arguments: Any) -> tuple[Any, ...]:
        return (*function(*arguments), tf.constant(True))

    found = tf.data.Dataset.from_tensors(arguments).map(tf.autograph.experimental.do_not_convert(attempt))
    blanks = tf.data.Dataset.from_tensors((*blank, tf.constant(False)))
    values: tuple[Any, ...] = found.ignore_errors().concatenate(blanks).take(1).get_single_element()
    return values


def replace_damaged(
    rows: Any, images: Any, labels: Any, is_intact: Any, record: Callable[[npt.NDArray[np.int64]], Any]
) -> tuple[Any, Any]:
    """The batch with its first intact example in the place of each damaged one, which is recorded.

    Fails if no example is intact, with an error that contains a row.
    """
    import tensorflow as tf

    def recorded() -> Any:
        return tf.numpy_function(record, [tf.boolean_mask(rows, ~is_intact)], tf.int64)

    count = tf.cond(tf.reduce_all(is_intact), lambda: tf.constant(0, tf.int64), recorded)
    some = tf.debugging.Assert(tf.reduce_any(is_intact), [READ_FAILURE, rows[0]])
    with tf.control_dependencies([some, tf.identity(count)]):
        first = tf.argmax(tf.cast(is_intact, tf.int32))
        places = tf.where(is_intact, tf.range(tf.size(rows, tf.int64)), first)
    return tf.gather(images, places), tf.gather(labels, places)
