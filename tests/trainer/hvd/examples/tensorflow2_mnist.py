"""The shape of the example tensorflow2_mnist.py of Horovod, a custom training loop, with generated images."""

import os
import sys
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def main() -> None:
    hvd.init()
    os.chdir(sys.argv[1])
    random = np.random.default_rng(hvd.rank())
    images, labels = random.random((128, 14, 14)), random.integers(0, 10, 128)
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.cast(images[..., tf.newaxis], tf.float32), tf.cast(labels, tf.int64))
    )
    dataset = dataset.repeat().shuffle(10000).batch(32)
    mnist_model = tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.25),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    loss = tf.losses.SparseCategoricalCrossentropy()
    opt = tf.optimizers.Adam(0.001 * hvd.size())
    checkpoint_dir = "./checkpoints"
    checkpoint = tf.train.Checkpoint(model=mnist_model, optimizer=opt)

    @tf.function  # type: ignore[untyped-decorator]
    def training_step(images: Any, labels: Any, first_batch: bool) -> Any:
        with tf.GradientTape() as tape:
            probs = mnist_model(images, training=True)
            loss_value = loss(labels, probs)
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss_value, mnist_model.trainable_variables)
        opt.apply_gradients(zip(grads, mnist_model.trainable_variables, strict=True))
        if first_batch:
            hvd.broadcast_variables(mnist_model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables(), root_rank=0)
        return loss_value

    for batch, (images, labels) in enumerate(dataset.take(8 // hvd.size())):
        loss_value = training_step(images, labels, batch == 0)
        if batch % 10 == 0 and hvd.rank() == 0:
            print(f"Step #{batch}\tLoss: {loss_value:.6f}")
    if hvd.rank() == 0:
        checkpoint.save(checkpoint_dir)
    np.savez(f"weights-{hvd.rank()}.npz", *mnist_model.get_weights())


if __name__ == "__main__":
    main()
