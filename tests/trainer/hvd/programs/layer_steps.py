"""Uses the callbacks, the tapes and `load_model` in two ranks: `layer_steps.py DIRECTORY`.

Each rank writes its results to `found-RANK.npz`, rank 0 the errors of invalid uses to `errors.json`.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd

DIRECTORY = Path(sys.argv[1])
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Records the metrics of each epoch, and the learning rate and the velocity before and after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[float] = []
        self.rates: list[float] = []
        self.velocities: list[tuple[float, float]] = []

    def velocity(self) -> float:
        return float(np.linalg.norm(self.model.optimizer.momentums[0]))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.corrected = self.velocity()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.velocities.append((self.corrected, self.velocity()))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.reported += [(logs or {})["loss"], (logs or {})["accuracy"]]


def new_model(dropout: float = 0.0) -> Any:
    layers = [keras.layers.Dense(5, "tanh"), keras.layers.Dropout(dropout), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


def flat(variables: Any) -> Any:
    return np.concatenate([np.asarray(variable, np.float64).ravel() for variable in variables])


def data(seed: int, rows: int = 64) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, 6)).astype(np.float32), random.integers(0, 3, rows)


def with_callbacks(found: dict[str, Any]) -> None:
    """Ranks with different initial weights and data, and with dropout."""
    keras.utils.set_random_seed(100 + hvd.rank())
    model = new_model(dropout=0.3)
    found["start"] = flat(model.weights)
    local = model.layers[0].bias
    local.assign(tf.fill(local.shape, 1.0 + hvd.rank()))
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0, "", [local])
    broadcast.set_model(model)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.02, momentum=0.9)), LOSS, metrics=["accuracy"])
    broadcast.on_train_begin()
    found["local"] = np.asarray(local)
    own, averaged = Recorder(), Recorder()
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        own,
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.02, 2, momentum_correction=True, verbose=1),
        averaged,
    ]
    history = model.fit(*data(hvd.rank()), batch_size=8, epochs=3, callbacks=callbacks, verbose=0)
    found["end"], found["slots"] = flat(model.weights), flat(model.optimizer.variables)
    found["seeds"] = np.asarray(model.layers[1].seed_generator.state.value)
    found["own metrics"], found["averaged metrics"] = np.array(own.reported), np.array(averaged.reported)
    found["rates"], found["velocities"] = np.array(averaged.rates), np.array(averaged.velocities)
    found["logged rates"] = np.array(history.history["lr"])
    if hvd.rank() == 0:
        model.save(DIRECTORY / "model.keras")
        model.save(DIRECTORY / "model.h5")
    hvd.allgather_object(None)


def loaded(found: dict[str, Any]) -> None:
    """Continues the training of the saved model."""
    model = hvd.load_model(DIRECTORY / "model.keras", compression=hvd.Compression.fp16)
    found["loaded slots"] = flat(model.optimizer.variables)
    model.fit(*data(hvd.rank()), batch_size=8, verbose=0)
    found["loaded end"] = flat(model.weights)


def loop(wrap: Callable[[Any], Any], rows: slice) -> Any:
    """A custom training loop, with the tape wrapped before or after it records, and sources in a dictionary."""
    keras.utils.set_random_seed(5)
    model, optimizer = new_model(), keras.optimizers.Adam(0.02)

    @tf.function  # type: ignore[untyped-decorator]
    def step(features: Any, labels: Any, late: bool) -> None:
        with tf.GradientTape() if late else wrap(tf.GradientTape()) as tape:
            loss = LOSS(labels, model(features, training=True))
        if late:
            tape = wrap(tape)
        weights = {variable.path: variable for variable in model.trainable_variables}
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients([(gradients[name], weights[name]) for name in weights])
        hvd.allreduce(loss)

    for number in range(4):
        features, labels = data(number, 12)
        step(features[rows], labels[rows], number % 2 == 0)
    return flat(model.weights)


def partial(rows: slice) -> tuple[Any, Any]:
    """The weights of a local layer and of a shared layer."""
    keras.utils.set_random_seed(5)
    model = new_model()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[0])
    model.compile(optimizer, LOSS)
    features, labels = data(0, 12)
    model.train_on_batch(features[rows], labels[rows])
    return flat(model.layers[0].weights), flat(model.layers[2].weights)


def errors() -> dict[str, str]:
    """The error messages of invalid uses."""
    sgd, distributed = keras.optimizers.SGD, hvd.DistributedOptimizer
    twice = distributed(sgd())
    built = sgd()
    built.build(new_model().trainable_variables)
    accumulating = sgd(gradient_accumulation_steps=2)
    several = keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(distributed(sgd())))
    compiled = new_model()
    compiled.compile(distributed(sgd()), LOSS, jit_compile=True)
    plain = new_model()
    plain.save(DIRECTORY / "plain.keras")
    state = hvd.elastic.KerasState
    ninth: list[Any] = [None, "", "", hvd.Compression.none, False, 1.0, hvd.Average, 2]
    no_rate: Any = None
    uses: dict[str, Callable[[], Any]] = {
        "no optimizer": lambda: distributed("sgd"),
        "twice": lambda: distributed(twice),
        "inner twice": lambda: distributed(several),
        "adasum": lambda: distributed(sgd(), op=hvd.Adasum),
        "predivided sum": lambda: distributed(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0),
        "groups": lambda: distributed(sgd(), groups=0.5),
        "bucket size": lambda: distributed(sgd(), bucket_bytes=0),
        "groups and buckets": lambda: distributed(sgd(), num_groups=2, bucket_bytes=100),
        "no passes": lambda: distributed(sgd(), backward_passes_per_step=0),
        "passes of slots": lambda: distributed(built, backward_passes_per_step=2),
        "passes twice": lambda: distributed(accumulating, backward_passes_per_step=2),
        "ninth argument": lambda: distributed(sgd(), *ninth),
        "jit_compile": lambda: compiled.train_on_batch(*data(0, 8)),
        "tape": lambda: hvd.DistributedGradientTape(sgd()),
        "load without optimizer": lambda: hvd.load_model(DIRECTORY / "plain.keras"),
        "legacy": lambda: hvd.load_model(DIRECTORY / "model.keras", legacy_opts=True),
        "global variables": lambda: hvd.broadcast_global_variables(0),
        "batch norm": lambda: hvd.SyncBatchNormalization(),
        "best": lambda: hvd.callbacks.BestModelCheckpoint(),
        "no rate": lambda: hvd.callbacks.LearningRateWarmupCallback(no_rate),
        "unbuilt state": lambda: state(keras.Sequential([keras.layers.Dense(2)])),
        "uncompiled state": lambda: state(plain),
        "tensorflow state": lambda: hvd.elastic.TensorFlowState(),
    }
    messages = {}
    for name, use in uses.items():
        try:
            use()
        except Exception as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages


def is_xla_automatic(optimizer: Any) -> bool:
    """Whether jit_compile="auto" means XLA for this optimizer on a machine with a GPU."""
    listed = tf.config.list_physical_devices
    tf.config.list_physical_devices = lambda *kind: [tf.config.PhysicalDevice("gpu", "GPU")]
    try:
        model = new_model()
        model.compile(optimizer, LOSS)
        return bool(model.jit_compile)
    finally:
        tf.config.list_physical_devices = listed


def main() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    share = slice(rank * 12 // size, (rank + 1) * 12 // size)
    found: dict[str, Any] = {}
    with_callbacks(found)
    loaded(found)
    found["tape"], found["tape alone"] = loop(hvd.DistributedGradientTape, share), loop(lambda tape: tape, slice(12))
    modules = [each for name, each in sys.modules.items() if name.startswith("__autograph_generated_file")]
    sources = "".join(Path(str(each.__file__)).read_text() for each in modules)
    found["translated"] = np.array(re.findall(r"def tf__(\w+)", sources))
    found["local layer"], found["shared layer"] = partial(share)
    sgd = keras.optimizers.SGD
    found["auto"] = np.array([is_xla_automatic(sgd()), is_xla_automatic(hvd.DistributedOptimizer(sgd()))])
    np.savez(DIRECTORY / f"found-{rank}.npz", **found)
    if rank == 0:
        (DIRECTORY / "errors.json").write_text(json.dumps(errors()))
    hvd.allgather_object(None)


main()
