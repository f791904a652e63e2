"""The shape of the example tensorflow2_keras_mnist.py of Horovod, for `fit`, with generated images."""

import os
import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf


def main() -> None:
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
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
    scaled_lr = 0.001 * hvd.size()
    opt = tf.optimizers.Adam(scaled_lr)
    opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
    mnist_model.compile(
        loss=tf.losses.SparseCategoricalCrossentropy(),
        optimizer=opt,
        metrics=["accuracy"],
        experimental_run_tf_function=False,
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=3, verbose=1),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))
    verbose = 1 if hvd.rank() == 0 else 0
    mnist_model.fit(dataset, steps_per_epoch=8 // hvd.size(), callbacks=callbacks, epochs=2, verbose=verbose)
    np.savez(f"weights-{hvd.rank()}.npz", *mnist_model.get_weights())


if __name__ == "__main__":
    main()
