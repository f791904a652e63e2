"""Trains with known delays until DIRECTORY/end exists: `delays.py DIRECTORY SHARE`.

Each batch reads the file `examples` of SHARE, and its number is in DIRECTORY/read-RANK before; from the number on that
is in DIRECTORY/waits, all ranks wait for DIRECTORY/go before they do. In the first attempt, the batches of rank 0 are
late, and rank 1 kills itself after the step KILLED. Later, the batches of rank 1 are late while DIRECTORY/slow exists.
Rank 0 writes a line for each step to DIRECTORY/times-ATTEMPT.
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

directory, share = map(Path, sys.argv[1:3])
attempt = int(os.environ["HOROVODJOB_ATTEMPT"])
KILLED, EVERY, MOST_STEPS = 22, 16, 10000
INPUT_SECONDS, STEP_SECONDS, MORE_SECONDS = 0.1, 0.4, (0.8, 1.5)
hvd.init()
keras.utils.set_random_seed(3)


def examples() -> bytes:
    """The file of the share, as soon as the share answers."""
    while True:
        try:
            return (share / "examples").read_bytes()
        except OSError:
            time.sleep(0.1)


def batches() -> Iterator[Any]:
    """Batches that arrive late."""
    waits, read = directory / "waits", directory / f"read-{hvd.rank()}"
    for step in range(MOST_STEPS):
        write(read, step)
        while waits.exists() and step >= int(waits.read_text()) and not (directory / "go").exists():
            time.sleep(0.1)
        examples()
        is_slow = (directory / "slow").exists() if hvd.rank() else attempt == 1
        time.sleep(INPUT_SECONDS + MORE_SECONDS[hvd.rank()] * is_slow)
        yield np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)


def write(file: Path, number: int) -> None:
    """Replace a file as a whole."""
    new = file.with_suffix(".new")
    new.write_text(str(number))
    new.rename(file)


def kill() -> None:
    """End this rank when there is a checkpoint, which is written in the background."""
    while not list(directory.glob("run/checkpoint-*.h5")):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


shapes = tuple(tf.TensorSpec((4, columns), tf.float32) for columns in (3, 1))
data = tf.data.Dataset.from_generator(batches, output_signature=shapes)
data = data.apply(tf.data.experimental.assert_cardinality(MOST_STEPS))
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
run = hvd.Run(directory / "run", model, optimizer, every_steps=EVERY)
for features, targets in run.steps(data):
    if (attempt, run.step, hvd.rank()) == (1, KILLED, 1):
        kill()
    time.sleep(STEP_SECONDS)
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    is_end = int(hvd.allreduce(tf.constant(int((directory / "end").exists())), op=hvd.Max, name="end"))
    if hvd.rank() == 0:
        with (directory / f"times-{attempt}").open("a") as file:
            file.write(json.dumps({"step": run.step}) + "\n")
    if is_end:
        break
