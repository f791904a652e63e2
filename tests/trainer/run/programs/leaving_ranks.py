"""A rank leaves the common steps of a run, each time in another way: `leaving_ranks.py DIRECTORY RANK CASE ...`.

After each case but the last one, all ranks continue.
"""

import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

directory = Path(sys.argv[1])
hvd.init()
rank = hvd.rank()
leaves = rank == int(sys.argv[2])
case = ""


class Acting(keras.callbacks.Callback):  # type: ignore[misc]
    """Raises an exception or stops, on one rank."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if case == "callback" and leaves and batch == 3:
            raise KeyError("own mistake")

    def on_train_end(self, logs: Any = None) -> None:
        if case == "end" and leaves:
            sys.exit(0)


class Limit(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training, on one rank."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = leaves


class Different(keras.callbacks.Callback):  # type: ignore[misc]
    """Lets the ranks have other losses."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["loss"] = float(epoch * (1 if leaves else -1))


def failing(value: Any, target: Any) -> Any:
    def fail(number: Any) -> Any:
        if leaves and number == 5:
            raise ValueError("a damaged file")
        return number

    tf.numpy_function(fail, [counter.assign_add(1)], tf.int64)
    return value, target


counter = tf.Variable(-1, dtype=tf.int64)


def fit_arguments(dataset: Any, inputs: Any) -> dict[str, Any]:
    """The data of a case, and how it is trained."""
    arguments: dict[str, Any] = {"x": dataset, "epochs": 6}
    match case:
        case "epochs" if leaves:
            arguments["epochs"] = 7
        case "one batch plain":
            batches = iter(dataset.take(9 if leaves else 100).repeat(1 if leaves else None))
            data = tf.data.Dataset.from_generator(lambda: batches, output_signature=dataset.element_spec)
            arguments |= {"x": data, "steps_per_epoch": 10}
        case "limit plain" if leaves:
            arguments["validation_data"] = None
        case "limit plain":
            arguments["validation_data"] = dataset
        case "data":
            arguments["x"] = dataset.map(failing)
        case "wrong call" if leaves:
            arguments["x"] = (inputs, inputs)
        case "loop steps" if leaves:
            arguments["x"] = dataset.take(8)
        case "arrays":
            order = np.random.default_rng(rank).permutation(40)
            arguments["x"] = hvd.Examples((inputs, np.arange(40)[order, None].astype(np.float32)), 4)
    return arguments


def loop(model: Any, data: Any) -> int:
    optimizer = keras.optimizers.SGD(0.01)
    number = -1
    for number, (features, targets) in enumerate(hvd.Run(directory / case, model, optimizer).steps(data, epochs=6)):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if number == 5 and case == "loop break all":
            break
        if number == 5 and leaves and case == "loop error":
            raise KeyError("own mistake")
    return number


def train() -> int:
    """The number of steps of a case."""
    keras.utils.set_random_seed(3)
    inputs, outputs = np.ones((40, 3), np.float32), np.ones((40, 1), np.float32)
    if case.startswith("nan") and leaves:
        outputs[12:16] = np.nan
    arguments = fit_arguments(tf.data.Dataset.from_tensor_slices((inputs, outputs)).batch(4), inputs)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    if case.startswith("loop"):
        return loop(model, arguments["x"])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    kinds: dict[str, list[Any]] = {
        "nan": [keras.callbacks.TerminateOnNaN()],
        "limit": [Limit()],
        "early": [Different(), keras.callbacks.EarlyStopping("loss", patience=2)],
    }
    extra = kinds.get(case.partition(" ")[0], [Acting()])
    runs = [] if case.endswith("plain") else [hvd.RunCallback(directory / case)]
    model.fit(**arguments, callbacks=[*runs, *extra], verbose=0)
    return int(model.optimizer.iterations)


for case in sys.argv[3:]:
    try:
        print(f"RANK {rank} {case}: {train()} STEPS", flush=True)
    except Exception as error:
        print(f"RANK {rank} {case}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        if case == sys.argv[-1]:
            # Without the end of the process, the other ranks learn from nobody that this one has left.
            time.sleep(2)
            raise SystemExit(1) from error
