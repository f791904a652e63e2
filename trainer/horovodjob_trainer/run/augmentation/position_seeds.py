"""Seeds of random numbers that depend only on the seed of the run and a position in the sequence of the job."""

from typing import Any

import keras
import tensorflow as tf


class PositionSeeds(keras.random.SeedGenerator):  # type: ignore[misc]
    """A seed generator without a state, so that a resumed run draws the numbers of an uninterrupted run.

    `position` is an integer tensor. The numbers of different purposes at the same position are independent. An object
    is for one branch of a graph, because it counts the operations when they are traced.
    """

    def __init__(self, seed: int, position: Any, purpose: int) -> None:
        self._key = tf.random.fold_in(tf.constant([seed, purpose], tf.int64), position)
        self._draws = 0

    def next(self, ordered: bool = True) -> Any:
        """The seed of the next random operation of a graph."""
        self._draws += 1
        return tf.random.fold_in(self._key, self._draws)
