"""Trains while ranks join and fail, until a file `finish` exists: `elastic_steps.py DIRECTORY`.

When a file `kill` exists, rank 1 kills itself two steps after the last commit.

Each rank appends `position size rank pid` to a separate file. At the end, rank 0 repeats the whole training alone.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd

ROWS = 12
STEPS_PER_COMMIT = 3
DIRECTORY = Path(sys.argv[1])


def batch(position: int) -> tuple[Any, Any]:
    random = np.random.default_rng(position)
    return random.normal(size=(ROWS, 6)).astype(np.float32), random.integers(0, 3, ROWS)


def small_model() -> Any:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def weights(model: Any) -> Any:
    return np.concatenate([np.ravel(variable) for variable in model.weights])


@hvd.elastic.run
def train(state: Any) -> None:
    share = ROWS // hvd.size()
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    state.sizes.append(hvd.size())
    while state.position < state.last:
        features, labels = batch(state.position)
        state.model.train_on_batch(features[mine], labels[mine])
        state.position += 1
        with (DIRECTORY / f"steps-{os.getpid()}").open("a") as file:
            file.write(f"{state.position} {hvd.size()} {hvd.rank()} {os.getpid()}\n")
        if hvd.rank() == 1 and state.position % STEPS_PER_COMMIT == 2 and (DIRECTORY / "kill").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if state.position % STEPS_PER_COMMIT == 0:
            if hvd.broadcast_object((DIRECTORY / "finish").exists()):
                state.last = min(state.last, state.position + STEPS_PER_COMMIT + 1)
            state.commit()


class Fails(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts batches and raises the error of a collective operation once, in the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.batches == 14:
            self.batches += 1
            raise hvd.elastic.HorovodInternalError("a rank died")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1


def fit_with_callbacks() -> dict[str, Any]:
    """Three epochs of eight batches with a commit every four: after a failure, training resumes from a commit."""
    model = small_model()
    hvd.DistributedOptimizer(model.optimizer)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    fails = Fails()
    callbacks = [
        fails,
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=4),
    ]
    data = tf.data.Dataset.from_tensors(batch(0)).repeat()

    @hvd.elastic.run
    def fit(state: Any) -> None:
        model.fit(data, steps_per_epoch=8, epochs=3 - state.epoch, callbacks=callbacks, verbose=0)

    fit(state)
    return {"epochs": state.epoch, "batch": state.batch, "iterations": int(model.optimizer.iterations)}


def main() -> None:
    hvd.init()
    model = small_model()
    hvd.DistributedOptimizer(model.optimizer)
    state = hvd.elastic.KerasState(model, position=0, last=10**9, sizes=[])
    train(state)
    alone = small_model()
    for position in range(state.position):
        alone.train_on_batch(*batch(position))
    found = {
        "position": state.position,
        "size": hvd.size(),
        "sizes": state.sizes,
        "difference": float(np.abs(weights(model) - weights(alone)).max()),
        "trained": float(np.abs(weights(small_model()) - weights(alone)).max()),
    }
    if hvd.size() == 1:
        found["fit"] = fit_with_callbacks()
    if hvd.rank() == 0:
        (DIRECTORY / "found.json").write_text(json.dumps(found))


main()
