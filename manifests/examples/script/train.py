"""Trains a small network on handwritten digits with Horovod, as a script of your own would: on one rank or on many.

On this machine:  hvj run --local --nodes 2 train.py
On a cluster:     hvj run --nodes 2 train.py
"""

import argparse
import os
from importlib.resources import files
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images of each rank in a step")
parser.add_argument("--learning-rate", type=float, default=0.001, help="of one rank")
options = parser.parse_args()

hvd.init()
if gpus := tf.config.list_physical_devices("GPU"):  # each rank has one GPU of its node
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
keras.utils.set_random_seed(1 + hvd.rank())

with files("horovodjob_trainer.data.formats").joinpath("digits.npz").open("rb") as file, np.load(file) as digits:
    images, labels = digits["images"][..., np.newaxis] / 16, digits["labels"].astype(int)
training = 1437 - 1437 % hvd.size()
mine = slice(hvd.rank(), training, hvd.size())  # as many images for every rank, and others

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
optimizer = keras.optimizers.Adam(options.learning_rate * hvd.size() ** 0.5)
model.compile(
    hvd.DistributedOptimizer(optimizer), "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False
)
model.fit(
    images[mine],
    labels[mine],
    batch_size=options.batch_size,
    epochs=options.epochs,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    verbose=2 if hvd.rank() == 0 else 0,
)
if hvd.rank() == 0:
    loss, accuracy = model.evaluate(images[1437:], labels[1437:], verbose=0)
    print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}")
    if directory := os.environ.get("AZ_BATCHAI_OUTPUT_output"):  # noqa: SIM112  # of --download, --claim or --share
        model.save(Path(directory, "model.keras"))
