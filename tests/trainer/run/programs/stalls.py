"""Trains in small steps until DIRECTORY/end exists, and disturbs ranks on request: `stalls.py DIRECTORY WAY`.

A rank that finds DIRECTORY/request-RANK before a step does what this file says, while the file exists.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

directory, way = Path(sys.argv[1]), sys.argv[2]
hvd.init()
keras.utils.set_random_seed(3)
MOST_STEPS = 4000
request, fifo = directory / f"request-{hvd.rank()}", directory / f"fifo-{hvd.rank()}"
share = directory / f"share-{hvd.rank()}" / "examples"
share.parent.mkdir()
share.write_bytes(b"1")
os.mkfifo(fifo)
(directory / f"process-{hvd.rank()}").write_text(str(os.getpid()))
steps = 0


def disturb() -> str:
    """Do what is requested, and return it."""
    global steps
    steps += 1
    if steps == 5 and hvd.rank() == 0:
        print("TRAINS", flush=True)
    time.sleep(0.02)
    if not request.exists() or not (kind := request.read_text()):  # the test is writing it
        return ""
    if kind == "stop":
        request.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "python":
        while request.exists():
            time.sleep(0.01)
    elif kind == "native":  # with the lock of the interpreter
        ctypes.PyDLL(None).open(bytes(fifo), os.O_RDONLY)
    request.unlink(missing_ok=True)
    return kind


class Disturbing(keras.callbacks.Callback):  # type: ignore[misc]
    """Hangs before a step."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        disturb()
        if (directory / "end").exists():
            self.model.stop_training = True


def read(number: Any) -> Any:
    with suppress(OSError):
        share.read_bytes()
    return number


numbers = tf.data.Dataset.range(40).map(lambda number: tf.numpy_function(read, [number], tf.int64))
data = numbers.map(lambda _: (tf.ones(3), tf.ones(1))).batch(4, drop_remainder=True)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
if way == "loop":
    run = hvd.Run(directory / "run", model, optimizer)
    for features, targets in run.steps(data, epochs=MOST_STEPS // 10):
        if disturb() == "skip":
            continue
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if int(hvd.allreduce(tf.constant(int((directory / "end").exists())), op=hvd.Max)):
            break
else:
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    runs = [hvd.RunCallback(directory / "run")] if way == "callback" else []
    model.fit(data, epochs=MOST_STEPS // 10, callbacks=[*runs, Disturbing()], verbose=0)
print("ENDED", flush=True)
