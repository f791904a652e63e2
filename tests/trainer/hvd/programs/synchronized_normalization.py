"""Synchronized batch normalization on several ranks. Each rank compares it with one process that has all examples."""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd


def gradients(model: Any, layer: Any, inputs: Any, targets: Any, mask: Any) -> list[Any]:
    """The gradients of a loss in training, as a compiled step computes them."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(inputs: Any, targets: Any, mask: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = layer(model(inputs), training=True, mask=mask)
            loss = tf.reduce_mean(tf.square(outputs - targets))
        variables = [each.value for each in (*model.trainable_variables, *layer.trainable_variables)]
        return tape.gradient(loss, variables)

    return [each.numpy() for each in step(inputs, targets, mask)]


tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
size, rank, batch = hvd.size(), hvd.rank(), 6
random = np.random.default_rng(1)
# The batches of the ranks have different means and variances.
inputs = np.concatenate([random.normal(3 * each, 1 + each, (batch, 5, 3)) for each in range(size)]).astype(np.float32)
targets = random.normal(size=(size * batch, 5, 4)).astype(np.float32)
whole_mask = np.tile(random.random((batch, 5)) < 0.7, (size, 1))  # as many examples on each rank
own = slice(rank * batch, (rank + 1) * batch)

for mask in (None, whole_mask):
    results = []
    for synchronized, part in ((True, own), (False, slice(None))):
        keras.utils.set_random_seed(2)
        model = keras.Sequential([keras.Input((5, 3)), keras.layers.Dense(4)])
        layer = keras.layers.BatchNormalization(momentum=0.5, synchronized=synchronized)
        layer.build((None, 5, 4))
        found = gradients(model, layer, inputs[part], targets[part], None if mask is None else mask[part])
        if synchronized:
            found = [each.numpy() for each in hvd.grouped_allreduce(found, op=hvd.Average, name="gradients")]
        results.append([*found, np.array(layer.moving_mean), np.array(layer.moving_variance)])
    for value, expected in zip(*results, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
hvd.allgather_object(None)  # no rank ends before another one has compared
