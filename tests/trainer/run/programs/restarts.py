"""Starts of one run in one process, with what a start must find again: `restarts.py DIRECTORY`."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd
from horovodjob_trainer.callbacks import ProgressCallback

directory = Path(sys.argv[1])
hvd.init()
random = np.random.default_rng(1)
inputs = random.normal(size=(40, 3)).astype(np.float32)
outputs = random.normal(size=(40, 1)).astype(np.float32)
found: dict[str, Any] = {}


class Killed(Exception):
    """Ends a start."""


class Killing(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends a start after this step, or at the end of this epoch, and does not let the callbacks know."""

    def __init__(self, step: int, epoch: int) -> None:
        super().__init__()
        self.step, self.epoch = step, epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == self.step:
            raise Killed

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            raise Killed


class Scores(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the validation loss of each epoch, and has a state of its own."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values, self.seen, self.marks = values, list[int](), np.zeros(2)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["val_loss"] = self.values[epoch]
        self.seen.append(epoch)
        self.marks = self.marks + 1

    def get_run_state(self) -> Any:
        return {"seen": self.seen, "marks": [self.marks]}

    def set_run_state(self, state: Any) -> None:
        self.seen, self.marks = state["seen"], state["marks"][0]


class SlowValidation(keras.callbacks.Callback):  # type: ignore[misc]
    """Measures the steps of the last epoch, before a validation that takes a second longer."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.began = time.monotonic()

    def on_test_begin(self, logs: Any = None) -> None:
        self.seconds = time.monotonic() - self.began
        time.sleep(self.seconds + 1)


def network() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices((inputs, outputs)).batch(4)


def fit(name: str, optimizer: Any, callbacks: Any = (), data: Any = None, kill: int = -1, **arguments: Any) -> Any:
    options, killing = arguments.pop("options", {}), Killing(kill, arguments.pop("kill_epoch", -1))
    keras.utils.set_random_seed(3)
    model = network()
    model.compile(optimizer, "mse", run_eagerly=True)
    run = hvd.RunCallback(directory / name, every_steps=2, **options)
    try:
        model.fit(data or dataset(), verbose=0, callbacks=[run, *callbacks, killing], **arguments)
    except Killed:
        pass
    except Exception as error:
        found[f"{name} error"] = f"{type(error).__name__}: {error}"
    return model


# The settings of the script.
optimizers = keras.optimizers
fit("rate", optimizers.SGD(0.1), kill=14, epochs=2, options={"settings": {"rate": 0.1}})
changed = {"settings": {"rate": 0.02}, "resume": "continue"}
model = fit("rate", optimizers.SGD(0.02, momentum=0.5, weight_decay=0.1), epochs=2, options=changed)
found["other variables"] = found.pop("rate error", "")  # momentum adds variables
model = fit("rate", optimizers.SGD(0.02, weight_decay=0.1, clipnorm=1.0), epochs=2, kill=16, options=changed)
found["rate"] = [float(model.optimizer.learning_rate), model.optimizer.weight_decay, int(model.optimizer.iterations)]
model = fit("rate", optimizers.SGD(0.02), epochs=2, options=changed)
found["rate again"] = float(model.optimizer.learning_rate)


def scaled(scale: float, rate: float, **arguments: Any) -> Any:
    optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(rate), initial_scale=scale)
    return fit("scale", optimizer, epochs=2, options={"resume": "continue"}, **arguments).optimizer


scaled(64.0, 0.1, kill=4)
optimizer = scaled(32.0, 0.05)
found["scale"] = [float(optimizer.dynamic_scale), float(optimizer.inner_optimizer.learning_rate)]


class Halving(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) / 2


fit("reduced", optimizers.SGD(0.1), [Halving()], kill=14, epochs=2)
found["reduced"] = float(fit("reduced", optimizers.SGD(0.1), kill=16, epochs=2).optimizer.learning_rate)
halving = keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 2)
fit("scheduled", optimizers.SGD(0.1), [halving], kill=14, epochs=2)
found["scheduled"] = float(fit("scheduled", optimizers.SGD(0.1), [halving], epochs=2).optimizer.learning_rate)

schedule = optimizers.schedules.ExponentialDecay(0.5, 10, 0.5)
fit("schedule", optimizers.Adam(0.1), kill=12, epochs=2)
model = fit("schedule", optimizers.Adam(schedule), epochs=2, kill=16, options={"resume": "continue"})
found["number to schedule"] = [float(model.optimizer.learning_rate), int(model.optimizer.iterations)]
fit("schedule", optimizers.RMSprop(0.1), epochs=2, options={"resume": "continue"})
found["other optimizer"] = found.pop("schedule error", "")
model = fit("schedule", optimizers.Adam(0.3), epochs=2, options={"resume": "continue"})
found["schedule to number"] = [float(model.optimizer.learning_rate), int(model.optimizer.iterations)]


def paired(first: Any, second: Any, kill: int = 20) -> list[float]:
    """The learning rates of two optimizers at the beginning of a start, which halves the first one."""
    model = network()
    optimizers, rates = [first, second], list[float]()
    run = hvd.Run(directory / "pair", model, optimizers, every_steps=1, resume="continue")
    for number, _ in enumerate(run.steps(dataset(), epochs=2)):
        if not number:
            rates = [float(each.learning_rate) for each in optimizers]
            first.learning_rate = rates[0] / 2
        if number == kill:
            break
    return rates


found["pair"] = [
    paired(optimizers.SGD(0.1), optimizers.Adam(0.2), 3),
    paired(optimizers.SGD(0.1), optimizers.Adam(schedule), 3),  # keeps the first rate, which is half of the script's
    paired(optimizers.SGD(0.4), optimizers.Adam(schedule), 3),
    paired(optimizers.SGD(0.3), optimizers.Adam(0.6)),
]


# Generators.
def generate() -> Iterator[Any]:
    yield from zip(inputs, outputs, strict=True)


def generated(function: Any) -> Any:
    signature = (tf.TensorSpec((3,), tf.float32), tf.TensorSpec((1,), tf.float32))
    return tf.data.Dataset.from_generator(function, output_signature=signature).batch(4)


model = fit("generator", optimizers.SGD(0.1), data=generated(generate), steps_per_epoch=7, epochs=3)
found["generator"] = int(model.optimizer.iterations)
exhausted = generate()
fit("exhausted", optimizers.SGD(0.1), data=generated(lambda: exhausted), steps_per_epoch=7, epochs=3)
found["exhausted"] = found["exhausted error"]
rows = iter(list(generate())[:28])  # the 7 batches of an epoch
fit("exact", optimizers.SGD(0.1), data=generated(lambda: rows), steps_per_epoch=7, epochs=3)
model = fit("exhausted", optimizers.SGD(0.1), data=generated(generate), steps_per_epoch=7, epochs=3)
found["continued"] = int(model.optimizer.iterations)
run = hvd.Run(directory / "loop", network(), optimizers.SGD(0.1))
found["loop"] = sum(1 for _ in run.steps(generated(generate), epochs=3, steps_per_epoch=7))

# Another order.
fit("order", optimizers.SGD(0.1), data=dataset().shuffle(10, 1), kill=10, epochs=2)
fit("order", optimizers.SGD(0.1), data=dataset().shuffle(10, 2), epochs=2)
found["order error"] = found["order error"].partition(":")[0] + found["order error"].partition(":")[2][:80]
model = fit("order", optimizers.SGD(0.1), data=dataset().shuffle(10, 2), epochs=2, options={"resume": "continue"})
found["order ignored"] = int(model.optimizer.iterations)


# The states of callbacks.
def callbacks() -> list[Any]:
    best = keras.callbacks.ModelCheckpoint(str(directory / "best.keras"), save_best_only=True)
    early = keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)
    slower = keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=2)
    return [Scores([3, 1, 2, 2.5, 1.5, 9]), best, early, slower, keras.callbacks.CSVLogger(directory / "log.csv")]


fit("callbacks", optimizers.SGD(0.1), callbacks(), kill_epoch=0, epochs=6)  # its row is in the log, and repeated
fit("callbacks", optimizers.SGD(0.1), callbacks(), kill=34, epochs=6)
best = (directory / "best.keras").read_bytes()
given = callbacks()
model = fit("callbacks", optimizers.SGD(0.1), given, epochs=6)
scores, _, early, slower, _ = given
is_kept = best == (directory / "best.keras").read_bytes()
whole = fit("whole", optimizers.SGD(0.1), others := callbacks()[:4], epochs=6)
found["callbacks"] = {
    "seen": scores.seen, "marks": scores.marks.tolist(), "best": [each.best for each in given[1:4]],
    "best file kept": is_kept, "stopped": early.stopped_epoch,
    "rate": float(model.optimizer.learning_rate),
    "rows": [row.partition(",")[0] for row in (directory / "log.csv").read_text().splitlines()],
    "steps": int(model.optimizer.iterations),
    "as whole": [bool(np.array_equal(*pair)) for pair in zip(model.get_weights(), whole.get_weights(), strict=True)],
    "whole": [others[0].seen, others[2].stopped_epoch, float(whole.optimizer.learning_rate)],
}  # fmt: skip
given = callbacks()
model = fit("callbacks", optimizers.SGD(0.1), given, epochs=6)
found["complete"] = [given[1].best, model.history.epoch, model.history.history["val_loss"]]
model = fit("callbacks", optimizers.SGD(0.1), [Scores([9] * 7)], epochs=7)
found["more epochs"] = [model.history.epoch, model.history.history["val_loss"]]


# Callbacks with changed arguments: the third epoch is interrupted, in the second one the loss was 2.
def monitors(*thresholds: float | None, keeps_weights: bool, **metric: str) -> list[Any]:
    kept = [
        keras.callbacks.ModelCheckpoint(str(directory / "one.keras"), save_best_only=True, initial_value_threshold=each)
        for each in thresholds
    ]
    other = keras.callbacks.ModelCheckpoint(str(directory / "one.keras"), save_best_only=True, **metric)
    stopping = keras.callbacks.EarlyStopping(patience=9, restore_best_weights=keeps_weights)
    return [Scores([3, 2, 2.5, 2.4]), *kept, other, stopping]


fit("monitors", optimizers.SGD(0.1), monitors(None, None, 1, 1, 1, keeps_weights=False), kill=24, epochs=4)
given = monitors(1, 5, 1, 2.45, None, keeps_weights=True, mode="max")
fit("monitors", optimizers.SGD(0.1), given, epochs=4)
found["monitors"] = [each.best for each in given[1:]]
fit("backup", optimizers.SGD(0.1), [keras.callbacks.BackupAndRestore(str(directory / "backup"))])


class Half(keras.callbacks.Callback):  # type: ignore[misc]
    def get_run_state(self) -> Any:
        return None


fit("half", optimizers.SGD(0.1), [Half()])


# The speed of an epoch, with a validation that takes a second longer than the steps.
def reported_seconds(name: str, samples: int = 10) -> float:
    *_, record = map(json.loads, (directory / name / "progress.jsonl").read_text().splitlines())
    return float(samples / record["samplesPerSecond"])


fit("speed", optimizers.SGD(0.1), [slow := SlowValidation()], validation_data=(inputs, outputs))
found["seconds"] = {"kept run": [reported_seconds("speed"), slow.seconds]}
progress, slow = ProgressCallback(batch_size=4, directory=directory / "progress"), SlowValidation()
(model := network()).compile(optimizers.SGD(0.1), "mse")
model.fit(dataset(), verbose=0, validation_data=dataset(), callbacks=[progress, slow])
found["seconds"]["callback"] = [reported_seconds("progress", len(inputs)), slow.seconds]  # the others count batches
began = time.monotonic()
run = hvd.Run(directory / "loop speed", network(), optimizers.SGD(0.1))
for _ in run.steps(dataset()):
    if run.ends_epoch:
        measured = time.monotonic() - began
        time.sleep(measured + 1)
found["seconds"]["loop"] = [reported_seconds("loop speed"), measured]
(directory / "found.json").write_text(json.dumps(found))
