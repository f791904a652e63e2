"""A network whose steps last a third of a second: meanwhile, the rank leaves its processor to others."""

import time
from typing import Any

import keras
import tensorflow as tf

STEP_SECONDS = 0.3


def pause(inputs: Any) -> Any:
    """The inputs, later."""
    time.sleep(STEP_SECONDS)
    return inputs


class Pause(keras.layers.Layer):  # type: ignore[misc]
    """A layer that does nothing but take time."""

    def call(self, inputs: Any) -> Any:
        """The inputs, later."""
        later = tf.py_function(pause, [inputs], inputs.dtype)
        later.set_shape(inputs.shape)
        return later


def network(shape: tuple[int, ...], classes: int) -> keras.Model:
    """A dense layer behind the pause."""
    layers = keras.layers
    return keras.Sequential([keras.Input(shape), Pause(), layers.Flatten(), layers.Dense(classes, "softmax")])
