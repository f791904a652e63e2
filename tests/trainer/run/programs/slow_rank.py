"""Trains for a long time in steps of a third of a second, in one of several ways: `slow_rank.py WAY`.

Each rank waits in its input and in its computation in each step. It waits much longer in the input while the file
input-RANK exists in the directory of the variable SLOW_RANK_DIRECTORY, and in the computation while compute-RANK does.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

directory = Path(os.environ["SLOW_RANK_DIRECTORY"])
MOST_STEPS, USUAL_SECONDS, MORE_SECONDS, NOISE = 4000, 0.15, 0.9, 0.1
noise = random.Random()


def wait(part: str) -> None:
    """The time that this rank needs for a part of its step."""
    seconds = MORE_SECONDS if (directory / f"{part}-{hvd.rank()}").exists() else 0.0
    time.sleep(seconds + USUAL_SECONDS * noise.uniform(1 - NOISE, 1 + NOISE))


def examples() -> Iterator[Any]:
    """Batches that arrive late."""
    for _ in range(MOST_STEPS):
        wait("input")
        yield np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)


def batches() -> Any:
    """The data set of a script."""
    shapes = tuple(tf.TensorSpec((4, columns), tf.float32) for columns in (3, 1))
    data = tf.data.Dataset.from_generator(examples, output_signature=shapes)
    return data.apply(tf.data.experimental.assert_cardinality(MOST_STEPS))


class Waiting(keras.layers.Layer):  # type: ignore[misc]
    """A layer whose computation takes its time."""

    def call(self, features: Any) -> Any:
        return features + tf.reshape(tf.numpy_function(self.zero, [], tf.float32), ())

    @staticmethod
    def zero() -> Any:
        """A number that is late."""
        wait("compute")
        return np.float32(0)


def small_model() -> Any:
    """The model of a script."""
    return keras.Sequential([keras.Input((3,)), Waiting(), keras.layers.Dense(1)])


def loop() -> None:
    """A loop of one's own."""
    model, optimizer = small_model(), keras.optimizers.SGD(0.01)
    run = hvd.Run(directory / "run", model, optimizer)
    for features, targets in run.steps(batches()):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def fit() -> None:
    """`fit` of Keras."""
    model = small_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    model.fit(batches(), verbose=0)


if __name__ == "__main__":
    hvd.init()
    keras.utils.set_random_seed(3)
    ways: dict[str, Callable[[], None]] = {"loop": loop, "fit": fit}
    ways[sys.argv[1]]()
