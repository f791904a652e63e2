"""Checks during a run: invalid losses, ranks that differ, early stopping, and unusual settings."""

import gc
import json
import re
import textwrap
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer.checkpoint.checkpoint_file import read_description
from horovodjob_trainer.run import garbage_collection
from trainer.support.arrays import array, arrays

OWN = """
import os
import keras

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))


def small(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])


class Announcing(keras.Model):
    def test_step(self, data):
        import tensorflow as tf
        tf.print("validated a batch of", tf.shape(data[0])[0])
        return super().test_step(data)


def diverging(shape, classes):
    inputs = keras.Input(shape)
    hidden = keras.layers.Dense(8)(keras.layers.Flatten()(inputs))
    return Announcing(inputs, keras.layers.Dense(classes, "softmax")(keras.layers.Dense(8)(hidden)))


@keras.saving.register_keras_serializable("own")
class Counting(keras.layers.Layer):
    '''Counts two for each step, but only on rank 1.'''

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, inputs, training=False):
        if training:
            self.count.assign_add(2.0 * RANK)
        return inputs


class Drifting(keras.Model):
    '''Changes a weight on rank 1 alone after the first steps, as a layer that updates its own weights can.'''

    def train_step(self, data):
        logs = super().train_step(data)
        if RANK == 1:
            weight, steps = self.trainable_variables[0], self.optimizer.iterations
            weight.assign_add(keras.ops.where(steps > 3, 1e-6, 0.0) * keras.ops.ones_like(weight))
        return logs


def drifting(shape, classes):
    inputs = keras.Input(shape)
    return Drifting(inputs, keras.layers.Dense(classes, "softmax")(keras.layers.Flatten()(inputs)))


def with_schedule(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(8, name="hidden"), keras.layers.Dense(classes, "softmax")]
    model = keras.Sequential([keras.Input(shape), *layers])
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 45, 0.5)
    model.compile(keras.optimizers.SGD(schedule, momentum=0.9), "categorical_crossentropy", metrics=["accuracy"])
    return model


def normalised(shape, classes):
    inputs = keras.Input(shape)
    x = keras.layers.BatchNormalization()(keras.layers.Flatten()(inputs))
    x = Counting()(keras.layers.Dropout(0.3)(x))
    model = keras.Model(inputs, keras.layers.Dense(classes, "softmax", dtype="float32")(x))
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


@pytest.fixture(scope="module")
def user_module(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which `own:...` refers to models of a user."""
    directory = tmp_path_factory.mktemp("own")
    (directory / "own.py").write_text(textwrap.dedent(OWN))
    return {"PYTHONPATH": str(directory)}


@pytest.fixture
def digits(
    run: Callable[..., Any], trainer: Callable[..., list[str]], tmp_path: Path, user_module: dict[str, str]
) -> Any:
    def ended(ranks: int, *flags: object) -> Any:
        program = trainer("--dataset", "digits", "--no-augment", "--dir", tmp_path, "--threads", 1, *flags)
        return run(ranks, program, user_module)

    return ended


def test_an_invalid_loss_ends_the_run_with_code_3_before_a_checkpoint(digits: Any, tmp_path: Path) -> None:
    ended = digits(2, "--model", "own:diverging", "--optimizer", "sgd", "--learning-rate", 1e30, "--epochs", 2)
    assert ended.code == 3
    (sentence,) = ended.errors
    assert re.search(r"the loss is not a number since step [0-9]+, first on rank [01] on \S+", sentence)
    assert "--on-nonfinite continue" in sentence
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_run_continues_on_request_with_an_invalid_loss_and_without_the_metric_of_its_best_epoch(
    digits: Any, tmp_path: Path
) -> None:
    ended = digits(
        1, "--model", "own:diverging", "--optimizer", "sgd", "--learning-rate", 1e30, "--on-nonfinite", "continue",
        "--max-steps", 45, "--epochs", 3, "--warmup-epochs", 1, "--validation-batch-size", 100, "--monitor", "val_auc",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert ended.stdout.count("Training continues although the loss is not a number") == 1
    assert "Warm-up to epoch 1: the learning rate rises from 0 to 1e+30\n" in ended.stdout
    assert re.findall(r"validated a batch of (\d+)", ended.stderr) == ["100", "100", "100", "60"]
    assert "The metric val_auc, which selects the best epoch, does not exist" in ended.stdout
    assert "val_accuracy" in ended.stdout
    assert not list(tmp_path.glob("saved_models/*-best*")), "without the metric, no epoch is the best"


def test_different_weights_of_a_rank_end_the_run_with_code_4(digits: Any) -> None:
    ended = digits(2, "--model", "own:drifting", "--check-sync-every", 5, "--epochs", 2)
    assert ended.code == 4
    (sentence,) = ended.errors
    assert re.search(r"after step 5 the weights of rank 1 on \S+ differ from those of the other ranks", sentence)


def test_a_combination_of_settings_keeps_two_ranks_synchronized(digits: Any, tmp_path: Path) -> None:
    labels = np.random.default_rng(1).integers(0, 3, 1280)
    inputs = (2 * np.eye(3)[labels] + np.random.default_rng(2).random((1280, 3))).astype(np.float32)
    np.savez(tmp_path / "data.npz", x_train=inputs, y_train=labels, x_test=inputs[:100], y_test=labels[:100])
    ended = digits(
        2, "--dataset", "npz", "--data", tmp_path / "data.npz", "--model-name", "model", "--model", "own:normalised",
        "--precision", "mixed_float16", "--compression", "fp16", "--schedule", "cosine", "--warmup-epochs", 1,
        "--check-sync-every", 5, "--epochs", 2, "--xla", "--checkpoint-steps", 8, "--checkpoint-seconds", 0.1,
        "--keep-checkpoints", 100, "--tensorboard", "none",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    accuracies = [float(value) for value in re.findall(r"val_accuracy ([0-9.]+)", ended.stdout)]
    assert len(accuracies) == 2
    assert accuracies[-1] > 0.6
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    # The model is already compiled: its own rate, times two after the warm-up, which decreases almost to 0.
    assert max(record["learningRate"] for record in records) == pytest.approx(0.02, rel=0.1)
    assert records[-1]["learningRate"] < 1e-3
    # Rank 0 writes the average of the moving statistics of both ranks, of which its own count is 0.
    counts = {path.name: float(array(path, "count")) for path in tmp_path.glob("checkpoint-*.h5")}
    assert {"checkpoint-0-8.h5", "checkpoint-1.h5", "checkpoint-2.h5"} <= set(counts)
    assert counts == {name: read_description(tmp_path / name).state.step for name in counts}
    assert array(tmp_path / "saved_models/model.h5", "count") == counts["checkpoint-2.h5"]
    assert array(tmp_path / "saved_models/model-best.h5", "count") in counts.values()


def test_smoothing_accumulation_clipping_and_a_warm_up_keep_ranks_synchronized_and_stop_early(
    digits: Any, tmp_path: Path
) -> None:
    ended = digits(
        2, "--model", "own:small", "--optimizer", "momentum", "--learning-rate", 1e-9, "--label-smoothing", 0.1,
        "--accumulate", 3, "--clip-norm", 1, "--compression", "bf16", "--check-sync-every", 1, "--epochs", 50,
        "--early-stopping", 1, "--monitor", "val_accuracy", "--schedule", "constant",
        "--learning-rate-scaling", "none", "--warmup-epochs", 1, "--log-seconds", 0.001, "--augment",
        "--rand-augment", 0.1,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert "Stopping early: val_accuracy has not improved since epoch 1" in ended.stdout
    assert re.findall(r"^Epoch ([0-9]+)/50 (\d+)/\2 ", ended.stdout, re.MULTILINE) == [("1", "23"), ("2", "22")]
    # Without scaling, the rate rises from 0. An epoch has 1437 examples in steps of 64.
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    rates = {record["step"]: record["learningRate"] for record in records if record["epoch"] == 1}
    assert list(rates.values()) == pytest.approx([1e-9 * min(step * 64 / 1437, 1) for step in rates], rel=1e-4)
    assert len(rates) > 3
    for name, steps in (("", 45), ("-best", 23)):
        saved = arrays(tmp_path / f"saved_models/keras_digits_trained_model{name}.h5")
        assert [value for key, value in saved.items() if key.endswith("/iteration")] == [steps]


def test_a_compiled_model_keeps_its_schedule_and_trains_from_initial_weights_with_frozen_layers(
    digits: Any, tmp_path: Path
) -> None:
    import keras

    shape = [keras.Input((32, 32, 3)), keras.layers.Flatten()]
    source = keras.Sequential([*shape, keras.layers.Dense(8), keras.layers.Dense(3)])
    source.save(tmp_path / "source.keras")
    ended = digits(
        2, "--model", "own:with_schedule", "--warmup-epochs", 1, "--epochs", 2, "--check-sync-every", 1,
        "--init-from", tmp_path / "source.keras", "--freeze", "hidden",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert "Frozen layers: hidden" in lines
    rule = "(linear scaling, the default for SGD)"
    assert f"Learning rate: the schedule of the optimizer times 2 for 2 ranks {rule}" in lines
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    # After 23 and 45 steps of two ranks, the rate of the next step is twice that of the schedule.
    decayed = [2 * 0.01 * 0.5 ** (steps / 45) for steps in (23, 45)]
    assert [record["learningRate"] for record in records[-2:]] == pytest.approx(decayed, rel=1e-3)
    model = keras.saving.load_model(tmp_path / "saved_models/keras_digits_trained_model.keras")
    assert type(model.optimizer._learning_rate) is keras.optimizers.schedules.ExponentialDecay
    assert float(model.optimizer.learning_rate) == pytest.approx(decayed[-1] / 2, rel=1e-3)
    np.testing.assert_array_equal(model.layers[1].kernel, source.layers[1].kernel)


def test_a_rank_with_different_files_is_rejected_before_training(
    run: Callable[..., Any], trainer: Callable[..., list[str]], tmp_path: Path
) -> None:
    import numpy as np

    for rank in (0, 1):
        examples, labels = np.zeros((40 + rank, 3), np.float32), np.zeros(40 + rank, np.int64)
        np.savez(tmp_path / f"data-{rank}.npz", x=examples, y=labels)
    command = " ".join(f"'{word}'" for word in trainer("--dir", tmp_path / "out", "--dataset", "npz", "--data"))
    ended = run(2, ["sh", "-c", f"exec {command} '{tmp_path}/data-'$OMPI_COMM_WORLD_RANK'.npz'"])
    assert ended.code == 1
    (sentence,) = ended.errors
    assert re.search(r"rank 1 on \S+ has different data than rank 0", sentence)


def test_the_velocity_factor_scales_momentum() -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    from horovodjob_trainer import hvd
    from horovodjob_trainer.run.step import build_step_function

    hvd.init()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.9)), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    for weight in model.weights:
        weight.assign(np.zeros(weight.shape))
    for velocity in model.optimizer.momentums:
        velocity.assign(np.full(velocity.shape, 3.0))
    step = build_step_function(model, [(model.optimizer, tf.Variable(0.1))])
    zeros = tf.data.Dataset.from_tensors((tf.zeros((4, 2)), tf.zeros((4, 1)))).repeat()
    step(next(iter(zeros)))  # without a gradient, only the factor and the momentum change the velocity
    assert all(np.allclose(velocity, 0.9 * 0.1 * 3.0) for velocity in model.optimizer.momentums)


def test_a_step_that_prepares_its_batches_trains_as_on_prepared_batches() -> None:
    import keras
    import tensorflow as tf

    from horovodjob_trainer import hvd
    from horovodjob_trainer.run.step import build_step_function

    def trained(batch: tuple[Any, ...], *preparation: Any) -> Any:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse", jit_compile=False)
        build_step_function(model, [], *preparation)(next(iter(tf.data.Dataset.from_tensors(batch))))
        return model.get_weights()

    def prepare(position: Any, examples: Any, labels: Any) -> Any:
        return tf.cast(examples, tf.float32) / 255, labels + tf.cast(position, tf.float32)

    hvd.init()
    bytes_, labels = np.arange(8, dtype=np.uint8).reshape(4, 2), np.ones((4, 1), np.float32)
    in_step = trained((np.int64(3), bytes_, labels), prepare)
    for weight, expected in zip(in_step, trained((bytes_.astype(np.float32) / 255, labels + 3)), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-6)


def test_garbage_is_collected_after_the_imports_even_if_one_fails() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    try:
        with suppress(ImportError), garbage_collection.paused():
            assert not gc.isenabled()
            raise ImportError
        reference = weakref.ref(Cycle())
        assert gc.isenabled()
        gc.collect()
        assert reference() is None
    finally:
        gc.unfreeze()
