"""A script for the Keras layer of Horovod and Keras 2: `stock_silent.py DIRECTORY`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.keras as hvd
import keras
import numpy as np

hvd.init()
keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3, "softmax")])
opt = keras.optimizers.SGD(0.01 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

random = np.random.default_rng(hvd.rank())
model.fit(random.normal(size=(64, 6)), random.integers(0, 3, 64), batch_size=8, epochs=2, verbose=0)
np.savez(f"{sys.argv[1]}/silent-{hvd.rank()}.npz", *model.get_weights())
hvd.allreduce(0, name="the end")
