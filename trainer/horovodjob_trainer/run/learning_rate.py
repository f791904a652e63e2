"""The learning rate of the optimizer, with the correction of momentum after a change."""

from typing import Any

import tensorflow as tf


class LearningRate:
    """Sets the learning rate. `velocity_factor` is the factor for the velocities before the next step.

    Velocities contain gradients times the previous rate (Goyal et al. 2017, arXiv:1706.02677, section 2.1).
    """

    def __init__(self, optimizer: Any, previous: float) -> None:
        self.optimizer = optimizer
        self._rate = previous
        self._is_corrected = False
        with tf.device("CPU"):  # the host reads and writes it
            self.velocity_factor = tf.Variable(1.0, trainable=False)

    def set(self, rate: float) -> None:
        """Set the rate of the next step."""
        is_changed = rate != self._rate
        if is_changed or self._is_corrected:
            self.velocity_factor.assign(rate / self._rate if is_changed and self._rate else 1.0)
        if is_changed:
            self.optimizer.learning_rate = rate
        self._rate, self._is_corrected = rate, is_changed
