"""Trains with delays: `lost_time.py DIRECTORY STEPS INPUT COMPUTE MORE [KILLED]`, times in seconds.

A batch takes INPUT to arrive on rank 0, a step COMPUTE there and MORE than that on rank 1, for which rank 0 waits in
the exchange. Rank 1 kills itself after the step KILLED. The file times.json beside the directory has its times of each
step: between the end of the one before and the batch, how long of that it waited for the batch, in its computation, and
in the exchange; and how long it waited for the last batch, and the time between the last step and the end of the loop.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd
from horovodjob_trainer.run.scripts.session import ScriptSession

directory, steps = Path(sys.argv[1]), int(sys.argv[2])
of_input, of_step, more = map(float, sys.argv[3:6])
killed = int(sys.argv[6]) if len(sys.argv) > 6 else 0
hvd.init()
keras.utils.set_random_seed(3)
times = list[tuple[float, float, float, float]]()
waited, next_batch = 0.0, ScriptSession.next_batch


def batches() -> Iterator[Any]:
    """Batches of a slow share."""
    for _ in range(steps):
        time.sleep(0 if hvd.rank() else of_input)  # or rank 0 would wait for the batch of rank 1, too
        yield np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)


def timed_batch(session: ScriptSession) -> Any:
    """The next batch."""
    global waited
    asked = time.monotonic()
    batch = next_batch(session)
    waited = time.monotonic() - asked
    return batch


def write_times(at_end: float = 0.0) -> None:
    """Write the times of the steps of this attempt."""
    (directory.parent / "times.json").write_text(json.dumps({"steps": times, "waited": waited, "at_end": at_end}))


shapes = tuple(tf.TensorSpec((4, columns), tf.float32) for columns in (3, 1))
data = tf.data.Dataset.from_generator(batches, output_signature=shapes)
data = data.apply(tf.data.experimental.assert_cardinality(steps))
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
run = hvd.Run(directory, model, optimizer, every_steps=8)
ScriptSession.next_batch = timed_batch  # type: ignore[method-assign, assignment]
ended = time.monotonic()
for features, targets in run.steps(data):
    began = time.monotonic()
    if killed and run.step == killed and hvd.rank() == 0:
        write_times()
    elif killed and run.step == killed:
        while not list(directory.glob("checkpoint-*.h5")):  # it is written in the background
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(of_step + more * hvd.rank())
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    computed = time.monotonic()
    gradients = hvd.grouped_allreduce(gradients)
    exchanged = time.monotonic()
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    between, ended = began - ended, time.monotonic()
    times.append((between, waited, computed - began + ended - exchanged, exchanged - computed))
if hvd.rank() == 0:
    write_times(time.monotonic() - ended)
