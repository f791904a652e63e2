"""Marks in the graph of a step: whether a rank still reads and computes, or waits for the others.

A mark is an assignment to a variable in the memory of the host, which takes some microseconds.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovodjob_trainer.watch.activity import Place

_variables: list[Any] = []


def create_marker() -> None:
    """Let the graphs that are traced from now on have marks."""
    if not _variables:
        with tf.init_scope(), tf.device("/CPU:0"):
            _variables.append(tf.Variable(int(Place.COMPUTATION), trainable=False, dtype=tf.int64, name="watch_marker"))


def mark(place: Place, after: Sequence[Any] = ()) -> None:
    """Mark that this rank is at a place of its step, as soon as these tensors exist."""
    if _variables:
        with tf.control_dependencies([each for each in after if each is not None]), tf.device("/CPU:0"):
            _variables[0].assign(int(place), read_value=False)


def marked_place() -> Place:
    """The newest mark."""
    return Place(int(_variables[0].numpy())) if _variables else Place.COMPUTATION
