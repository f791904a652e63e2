"""A script for the Keras layers of Horovod and Keras 2, in all its imports: `stock_loops.py DIRECTORY`."""

import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as khvd
import keras
import numpy as np
import tensorflow as tf
from horovod.keras import callbacks
from horovod.tensorflow.keras.callbacks import LearningRateWarmupCallback, MetricAverageCallback

hvd.init()
random = np.random.default_rng(hvd.rank())
features, labels = random.normal(size=(64, 6)).astype("float32"), random.integers(0, 3, 64)


def new_model() -> Any:
    return keras.Sequential([keras.Input((6,)), keras.layers.Dropout(0.1), keras.layers.Dense(3, "softmax")])


def save(name: str, model: Any) -> None:
    np.savez(f"{sys.argv[1]}/{name}-{hvd.rank()}.npz", *model.get_weights())


# model.fit with all callbacks
model = new_model()
model.compile(khvd.DistributedOptimizer(keras.optimizers.Adam(0.002)), "sparse_categorical_crossentropy")
history = model.fit(
    features,
    labels,
    batch_size=8,
    epochs=3,
    verbose=0,
    callbacks=[
        khvd.callbacks.BroadcastGlobalVariablesCallback(0),
        MetricAverageCallback(),
        LearningRateWarmupCallback(initial_lr=0.002, warmup_epochs=2),
        callbacks.LearningRateScheduleCallback(initial_lr=0.002, multiplier=0.1, start_epoch=2, end_epoch=3),
    ],
)
save("fit", model)
np.savez(f"{sys.argv[1]}/history-{hvd.rank()}.npz", loss=history.history["loss"], lr=history.history["lr"])
if khvd.rank() == 0:
    model.save(f"{sys.argv[1]}/model.keras")
khvd.allreduce(0, name="saved")
loaded = khvd.load_model(f"{sys.argv[1]}/model.keras")
loaded.fit(features, labels, batch_size=8, epochs=1, verbose=0)
save("loaded", loaded)

# the optimizer of horovod.tensorflow
model = new_model()
model.compile(hvd.DistributedOptimizer(keras.optimizers.RMSprop(0.002)), "sparse_categorical_crossentropy")
hvd.broadcast_variables(model.variables, root_rank=0)
model.fit(features, labels, batch_size=8, verbose=0)
save("optimizer", model)
hvd.allreduce(tf.constant(0), name="the end")
