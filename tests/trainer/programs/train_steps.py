"""Trains a few steps in several ways and writes what every rank ends with: `train_steps.py DIRECTORY BATCH`."""

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import data, hvd
from horovodjob_trainer.model import tutorial_cnn
from horovodjob_trainer.pipeline import training_batches
from horovodjob_trainer.training import compile_model, evaluation

STEPS = 8


class Witness(keras.callbacks.Callback):  # type: ignore[misc]
    """Remembers what an epoch reported and the learning rate of each of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[float] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.reported += [(logs or {})["loss"], (logs or {})["accuracy"]]


def small_network() -> Any:
    return keras.Sequential(
        [keras.Input((32, 32, 3)), keras.layers.Flatten(), keras.layers.Dense(8), keras.layers.Dense(10, "softmax")]
    )


def flat(variables: list[Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([np.asarray(variable, dtype=np.float64).ravel() for variable in variables])


def main() -> None:
    directory, batch = Path(sys.argv[1]), int(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    digits = data.digits()
    found: dict[str, np.ndarray[Any, Any]] = {}

    def train(name: str, model: Any, *extra: Any, epochs: int = 1) -> None:
        order = {"batch": batch, "rank": rank, "size": size, "seed": 3}
        batches = training_batches(digits.train, **order, augment=True, flip=True)
        found[f"{name} start"] = flat(model.weights)
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *extra]
        model.fit(batches, steps_per_epoch=STEPS, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False)
        found[f"{name} weights"] = flat(model.weights)
        found[f"{name} optimizer"] = flat(model.optimizer.variables)

    keras.utils.set_random_seed(100 + rank)
    model = tutorial_cnn(dropout=False)
    # RMSprop would divide by gradients that are nearly 0 and turn rounding into differences.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.02, momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    train("without dropout", model)
    found["evaluation"] = np.array(evaluation(model, digits.test.shard(rank, size)))
    found["evaluation alone"] = np.array(model.evaluate(digits.test.images / 255, digits.test.labels, verbose=0))

    model = tutorial_cnn()
    compile_model(model, learning_rate=1e-3 / size)
    own, averaged = Witness(), Witness()
    train("with dropout", model, own, hvd.callbacks.MetricAverageCallback(), averaged)
    found["own metrics"], found["averaged metrics"] = np.array(own.reported), np.array(averaged.reported)

    for name, optimizer in (
        ("momentum", keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True)),
        ("clipping", keras.optimizers.SGD(0.5, clipnorm=0.01)),
        ("adam", keras.optimizers.Adam(1e-3, amsgrad=True, use_ema=True)),
    ):
        model = small_network()
        model.compile(hvd.DistributedOptimizer(optimizer), "sparse_categorical_crossentropy", jit_compile=False)
        train(name, model)

    model, witness = small_network(), Witness()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.02)),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,
    )
    train("warm-up", model, hvd.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=2), witness, epochs=3)
    found["warm-up rates"] = np.array(witness.rates)

    np.savez(directory / f"{rank}-of-{size}.npz", **found)
    hvd.allgather_object(None)


main()
