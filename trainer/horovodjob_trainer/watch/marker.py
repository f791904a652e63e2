"""Marks in the graph of a step: whether a rank still reads and computes, or waits for the others.

A mark is an assignment to a variable in the memory of the host, which takes some microseconds. With the times of the
marks, a rank knows how long it has waited.

TensorFlow is imported where it is used: the watch of the trainer begins before it.
"""

from collections.abc import Sequence
from typing import Any

from horovodjob_trainer.watch.activity import Place

_variables: list[Any] = []


def create_marker() -> None:
    """Let the graphs that are traced from now on have marks."""
    import tensorflow as tf

    if not _variables:
        with tf.init_scope(), tf.device("/CPU:0"):
            # Since when this rank waits, and 0 if it does not; and how long it has waited.
            names = ("watch_since", "watch_waited")
            # Both at once: another thread reads them.
            _variables.extend([tf.Variable(0.0, trainable=False, dtype=tf.float64, name=name) for name in names])


def mark(place: Place, after: Sequence[Any] = ()) -> None:
    """Mark that this rank is at a place of its step, as soon as these tensors exist."""
    import tensorflow as tf
    from tensorflow.python.framework.config import is_op_determinism_enabled

    if not _variables or tf.executing_eagerly():  # an exchange outside of a graph shows itself
        return
    since, waited = _variables
    dependencies = [each for each in after if each is not None]
    if place is Place.EXCHANGE and dependencies:  # the gradient of the first weights is the last one to be computed
        dependencies.append(_on_host(dependencies[0]))
    with tf.control_dependencies(dependencies), tf.device("/CPU:0"):
        if is_op_determinism_enabled():  # which permits no clock in a graph
            since.assign(float(place is Place.EXCHANGE), read_value=False)
            return
        now = tf.timestamp()
        if place is Place.EXCHANGE:
            since.assign(now, read_value=False)
        else:
            waited.assign_add(now - since, read_value=False)
            since.assign(0.0, read_value=False)


def _on_host(tensor: Any) -> Any:
    """What exists when the device has computed the tensor: for a GPU, a copy of a number, which is not ahead of it."""
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU") or tensor.dtype.is_integer:
        return tensor
    values = tensor.values if isinstance(tensor, tf.IndexedSlices) else tensor
    first = tf.reshape(values, [-1])[:1]
    with tf.device("/CPU:0"):
        return tf.identity(first)


def marked_place() -> Place:
    """The newest mark."""
    return Place.EXCHANGE if _variables and float(_variables[0].numpy()) else Place.COMPUTATION


def waited_seconds() -> float:
    """How long this rank has waited for the others in graphs."""
    return float(_variables[1].numpy()) if _variables else 0.0
