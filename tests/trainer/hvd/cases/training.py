"""Callbacks, saved models, custom loops and the state of elastic training, on two ranks."""

import contextlib
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import h5py
import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from trainer.hvd.cases.shared import DIRECTORY, LOSS, are_equal, broadcast, data, flat, model, of_ranks, sgd, state

layers, optimizers = keras.layers, keras.optimizers
STEPS = 4  # of an epoch


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


def test_fit_synchronizes_weights_slots_metrics_and_the_warm_up_and_a_saved_model_continues() -> None:
    keras.utils.set_random_seed(100 + hvd.rank())
    network = model(layers.Dense(5, "tanh"), layers.Dropout(0.3))
    assert not are_equal(flat(network.weights))
    network.compile(hvd.DistributedOptimizer(optimizers.SGD(0.02, momentum=0.9)), LOSS, metrics=["accuracy"])
    own, averaged = Recorder(), Recorder()
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.02, 2, momentum_correction=True, verbose=1)
    callbacks = [broadcast(), own, hvd.callbacks.MetricAverageCallback(), warm_up, averaged]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        fit = network.fit(*data(8 * STEPS), batch_size=8, epochs=3, callbacks=callbacks, verbose=0)
    assert printed.getvalue().count("warm-up of the learning rate ended at 0.02") == 1 - hvd.rank()
    assert are_equal(state(network))
    assert not are_equal(network.layers[1].seed_generator.state)  # each rank has its own dropout
    assert not are_equal(own.reported)
    np.testing.assert_allclose(averaged.reported, np.mean(of_ranks(own.reported), axis=0), rtol=1e-6)
    rates, velocities, warm = np.array(averaged.rates), np.array(averaged.velocities), 2 * STEPS
    np.testing.assert_allclose(rates[:warm], 0.01 + 0.01 * np.arange(1, warm + 1) / warm, rtol=1e-6)
    np.testing.assert_allclose(rates[warm:], 0.02, rtol=1e-6)
    np.testing.assert_allclose(fit.history["lr"], [0.015, 0.02, 0.02], rtol=1e-6)
    np.testing.assert_allclose(velocities[1:, 0] / velocities[:-1, 1], rates[1:] / rates[:-1], rtol=1e-5)

    for name in ("model.keras", "model.h5") if hvd.rank() == 0 else ():
        network.save(DIRECTORY / name)
        assert optimizer_of(DIRECTORY / name) == ("keras.optimizers" if name == "model.keras" else None, "SGD")
    hvd.allgather_object(None)
    loaded = hvd.load_model(DIRECTORY / "model.keras", compression=hvd.Compression.fp16)
    np.testing.assert_array_equal(state(loaded), state(network))
    loaded.fit(*data(8 * STEPS), batch_size=8, verbose=0)
    assert are_equal(state(loaded))
    assert not np.array_equal(flat(loaded.weights), flat(network.weights))


def optimizer_of(path: Path) -> tuple[str | None, str]:
    """The module and the class of the optimizer in a file, in which nothing names Horovod or this package."""
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            text = str(dict(file.attrs))
    else:
        text = zipfile.ZipFile(path).read("config.json").decode()
    assert "horovod" not in text.lower()
    found = re.search(r'(?:"module": "(keras.optimizers)", )?"class_name": "(SGD)"', text)
    assert found, text
    return found[1], found[2]


class OwnRMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """An optimizer that Keras does not know."""


def test_models_with_an_optimizer_of_the_user_are_loaded_with_its_slots() -> None:
    network = model()
    network.compile(hvd.DistributedOptimizer(OwnRMSprop(0.0001)), LOSS, run_eagerly=True)
    network.train_on_batch(*data())
    path = DIRECTORY / f"own-{hvd.rank()}.keras"
    network.save(path)
    for known in ({"custom_optimizers": [OwnRMSprop]}, {"custom_objects": {"OwnRMSprop": OwnRMSprop}}):
        loaded = hvd.load_model(path, **known).optimizer
        assert (hvd.is_distributed(loaded), loaded.__class__) == (True, OwnRMSprop)
        np.testing.assert_array_equal(flat(loaded.variables), flat(network.optimizer.variables))


def test_a_model_that_only_rank_0_has_loaded_is_broadcast_with_its_slots() -> None:
    network = model()
    network.compile(sgd(), LOSS, run_eagerly=True)
    if hvd.rank() == 0:
        alone = model()
        alone.compile(optimizers.SGD(0.1, momentum=0.9), LOSS, run_eagerly=True)
        alone.train_on_batch(*data())
        alone.save(DIRECTORY / "alone.keras")
        network = hvd.load_model(DIRECTORY / "alone.keras")
    unbuilt = 2
    assert (len(network.optimizer.variables) > unbuilt) == (hvd.rank() == 0)
    network.fit(*data(), callbacks=[broadcast()], epochs=0, initial_epoch=1, verbose=0)
    assert are_equal(state(network))
    assert len(network.optimizer.variables) > unbuilt


def test_schedules_set_the_learning_rate_of_their_epochs() -> None:
    schedule, rates = hvd.callbacks.LearningRateScheduleCallback, list[float]()
    network = model()
    network.compile(sgd(), LOSS, run_eagerly=True)
    callbacks = [
        broadcast(),
        schedule(initial_lr=0.2, multiplier=0.1, start_epoch=0, end_epoch=2),
        schedule(initial_lr=0.2, multiplier=1e-2, start_epoch=2, end_epoch=4),
        schedule(initial_lr=0.2, multiplier=lambda epoch: epoch, start_epoch=4, end_epoch=6),
        keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: rates.append(float(network.optimizer.learning_rate))
        ),
    ]
    network.fit(*data(), batch_size=16, callbacks=callbacks, epochs=6, verbose=0)
    # Of a number, the power is that of the epochs since its start.
    np.testing.assert_allclose(rates, [0.2, 0.02, 0.2, 0.002, 0.8, 1.0], rtol=1e-4)


def loop(wrap: Callable[[Any], Any], rows: slice, function: Callable[[Any], Any]) -> Any:
    """A custom training loop, with the tape wrapped before or after it records, and sources in a dictionary."""
    keras.utils.set_random_seed(5)
    network, optimizer = model(layers.Dense(5, "tanh")), optimizers.Adam(0.02)

    @function
    def step(features: Any, labels: Any, late: bool) -> None:
        with tf.GradientTape() if late else wrap(tf.GradientTape()) as tape:
            loss = LOSS(labels, network(features, training=True))
        if late:
            tape = wrap(tape)
        weights = {variable.path: variable for variable in network.trainable_variables}
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients([(gradients[name], weights[name]) for name in weights])
        hvd.allreduce(loss)

    for number in range(4):
        features, labels = data(64, seed=number)
        step(features[rows], labels[rows], number % 2 == 0)
    return flat(network.weights)


def generated_modules() -> dict[str, Any]:
    return {name: each for name, each in sys.modules.items() if name.startswith("__autograph_generated_file")}


def test_two_ranks_with_batches_of_32_end_a_custom_loop_like_one_with_batches_of_64() -> None:
    before = generated_modules()
    together = loop(hvd.DistributedGradientTape, slice(32 * hvd.rank(), 32 * (hvd.rank() + 1)), tf.function)
    sources = [Path(str(each.__file__)).read_text() for name, each in generated_modules().items() if name not in before]
    assert re.findall(r"def tf__(\w+)", "".join(sources)) == ["step"], "only the code of the user becomes a graph"
    assert are_equal(together)
    np.testing.assert_allclose(together, loop(lambda tape: tape, slice(64), lambda step: step), atol=1e-5)


def is_xla_automatic(optimizer: Any) -> bool:
    """Whether jit_compile="auto" means XLA for this optimizer on a machine with a GPU."""
    listed = tf.config.list_physical_devices
    tf.config.list_physical_devices = lambda *kind: [tf.config.PhysicalDevice("gpu", "GPU")]
    try:
        network = model()
        network.compile(optimizer, LOSS)
        return bool(network.jit_compile)
    finally:
        tf.config.list_physical_devices = listed


def test_jit_compile_auto_disables_xla_for_a_distributed_optimizer() -> None:
    assert is_xla_automatic(optimizers.SGD())
    assert not is_xla_automatic(sgd())


def test_the_exchange_of_the_first_bucket_begins_before_the_last_gradient_exists() -> None:
    """Steps of a model with a bucket for each of its layers, in the timeline of Horovod."""
    width, count, steps = 512, 6, 3
    timeline = DIRECTORY / "timeline.json"
    network = keras.Sequential([keras.Input((width,)), *(layers.Dense(width) for _ in range(count))])
    network.compile(hvd.DistributedOptimizer(optimizers.SGD(0.01), name="overlap"), "mse")
    batch = np.ones((2 * width, width), np.float32)
    with patch.dict(os.environ, HOROVOD_FUSION_THRESHOLD=str(4 * width * (width + 1))):
        network.train_on_batch(batch, batch)  # traces the step
    hvd.start_timeline(str(timeline))
    for _ in range(steps):
        network.train_on_batch(batch, batch)
    hvd.stop_timeline()
    if hvd.rank() == 0:
        exchanged = begins(timeline.read_text(), "ALLREDUCE", 0)
        computed = begins(timeline.read_text(), "NEGOTIATE_ALLREDUCE", count - 1)
        assert len(exchanged) == len(computed) == steps
        # On a busy machine, one rank may begin a step later than the other.
        assert any(first < ready for first, ready in zip(exchanged, computed, strict=True))


def begins(timeline: str, activity: str, bucket: int) -> list[int]:
    """The times at which an activity of the first tensor of a bucket begins, one for each step."""
    # Horovod ends the file only when the process ends, so the last bracket can be missing.
    events = json.loads(timeline.strip().rstrip("],") + "]")
    (tensor,) = (
        each["pid"] for each in events if "overlap_HorovodAllreduce_" in (name := each.get("args", {}).get("name", ""))
        and name.endswith(f"_{bucket}_1of2")
    )  # fmt: skip
    return [each["ts"] for each in events if (each["pid"], each.get("name")) == (tensor, activity)]


def test_the_state_of_an_elastic_training_is_that_of_rank_0_and_of_the_last_commit() -> None:
    network = model()
    network.compile(optimizers.Adam(0.001), LOSS)
    other = [weight + 1.0 for weight in network.get_weights()]
    kept = hvd.elastic.KerasState(network, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    kept.sync()
    assert are_equal(flat(network.weights))
    synchronized = flat(network.weights)
    for commits in (False, True):
        network.set_weights(other)
        kept.batch, kept.epoch = 21, 11
        if commits:
            kept.commit()
        kept.restore()
        np.testing.assert_array_equal(flat(network.weights), flat(other) if commits else synchronized)
        assert (kept.batch, kept.epoch) == ((21, 11) if commits else (20, 10))


def test_a_subclass_of_the_commit_callback_can_override_commit() -> None:
    class Counting(hvd.elastic.CommitStateCallback):
        count = 0

        def commit(self) -> None:
            self.count += 1

    network = model()
    network.compile(sgd(), LOSS, run_eagerly=True)
    callback = Counting(hvd.elastic.KerasState(network), batches_per_commit=2)
    network.fit(*data(), batch_size=4, callbacks=[callback], verbose=0)
    assert callback.count == 3  # after 2 and 4 batches, and at the end of the epoch


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches that threads or processes of each rank make."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return data(4, seed=10 * hvd.rank() + index)


def test_ranks_train_on_the_batches_of_threads_and_processes() -> None:
    for multiprocessing in (False, True):
        batches = Batches(workers=2, use_multiprocessing=multiprocessing)
        network = model()
        network.compile(sgd(), LOSS, run_eagerly=True)
        callbacks = [broadcast(), hvd.callbacks.MetricAverageCallback()]
        fit = network.fit(batches, callbacks=callbacks, verbose=0, shuffle=False)
        assert are_equal(flat(network.weights))
        assert are_equal(fit.history["loss"])
