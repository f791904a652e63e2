"""`keras.layers.BatchNormalization(synchronized=True)` with the statistics of the batches of all ranks."""

from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.hvd.exchange import exchange

BatchNormalization = keras.layers.BatchNormalization


def patch_batch_normalization() -> None:
    """Patch the moments of the layer. In Keras, `synchronized` concerns the replicas of tf.distribute only."""
    original_moments = BatchNormalization._moments

    def _moments(self: Any, inputs: Any, mask: Any) -> Any:
        if self.synchronized and exchange.is_initialized() and exchange.size() > 1:
            return synchronized_moments(inputs, mask, self._reduction_axes)
        return original_moments(self, inputs, mask)

    BatchNormalization._moments = _moments


def synchronized_moments(inputs: Any, mask: Any, axes: list[int]) -> tuple[Any, Any]:
    """Mean and variance over these axes and all ranks. Every rank must call it in the same step.

    The gradient of a sum over the ranks is the sum of their gradients, so the average of the gradients of the weights
    is that of one process with all examples.
    """
    inputs = tf.convert_to_tensor(inputs)
    weights = tf.ones_like(inputs)
    if mask is not None:
        weights = tf.cast(tf.broadcast_to(tf.expand_dims(mask, -1), tf.shape(inputs)), inputs.dtype)
        inputs = tf.where(weights > 0, inputs, 0)
    own = [tf.reduce_sum(part, axis=axes) for part in (inputs, weights)]
    total, count = tf.unstack(exchange.allreduce(tf.stack(own), op=exchange.Sum))
    mean = tf.math.divide_no_nan(total, count)
    # The difference of the mean of the squares and the square of the mean would lose the variance of data whose mean is
    # much larger (Chan, Golub and LeVeque 1983). So each rank sums its deviations from the mean of all ranks.
    around = tf.reshape(mean, [1 if axis in axes else -1 for axis in range(inputs.shape.rank)])
    deviations = tf.reduce_sum(weights * tf.square(inputs - around), axis=axes)
    return mean, tf.math.divide_no_nan(exchange.allreduce(deviations, op=exchange.Sum), count)
