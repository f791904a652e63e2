"""Trains in small steps until DIRECTORY/end exists, and disturbs ranks on request: `stalls.py DIRECTORY WAY`.

A rank that finds DIRECTORY/hang-RANK before a step stays in an endless loop of Python while the file exists. If it
finds the FIFO DIRECTORY/native-RANK, it stays in native code until somebody writes to it.
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

directory, way = Path(sys.argv[1]), sys.argv[2]
hvd.init()
keras.utils.set_random_seed(3)
MOST_STEPS = 4000
loop, native = directory / f"hang-{hvd.rank()}", directory / f"native-{hvd.rank()}"
(directory / f"process-{hvd.rank()}").write_text(str(os.getpid()))
steps = 0


def hang_on_request() -> bool:
    """Hang while this is requested. Returns whether the training has to end."""
    global steps
    steps += 1
    if steps == 5 and hvd.rank() == 0:
        print("TRAINS", flush=True)
    time.sleep(0.02)
    if native.exists():
        ctypes.PyDLL(None).open(bytes(native), os.O_RDONLY)  # with the lock of the interpreter
        native.unlink()
    while loop.exists():
        pass
    return (directory / "end").exists()


class Disturbing(keras.callbacks.Callback):  # type: ignore[misc]
    """Hangs before a step."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if hang_on_request():
            self.model.stop_training = True


data = tf.data.Dataset.from_tensor_slices((np.ones((40, 3), np.float32), np.ones((40, 1), np.float32))).batch(4)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
if way == "loop":
    run = hvd.Run(directory / "run", model, optimizer)
    for features, targets in run.steps(data, epochs=MOST_STEPS // 10):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if int(hvd.allreduce(tf.constant(int(hang_on_request())), op=hvd.Max)):
            break
else:
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    runs = [hvd.RunCallback(directory / "run")] if way == "callback" else []
    model.fit(data, epochs=MOST_STEPS // 10, callbacks=[*runs, Disturbing()], verbose=0)
print("ENDED", flush=True)
