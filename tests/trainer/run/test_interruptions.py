"""A run that is interrupted by SIGTERM or a later run in its directory, or resumes on another number of ranks."""

import json
import math
import re
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer.data.order import rows_at_positions
from trainer.support.arrays import array
from trainer.support.background_job import JOB, Job, stopped_step
from trainer.support.interruptions import SHARED

TRAINING, BATCH, LEARNING_RATE, EPOCHS = 1200, 8, 1e-3, 2
OWN = """
import os, pathlib, time
import keras
import tensorflow as tf
from trainer.support import interruptions

DIRECTORY = pathlib.Path(os.environ["TEST_DIRECTORY"])
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", 0))
VALIDATION_SECONDS = float(os.environ.get("VALIDATION_SECONDS", 0))
TRACING_SECONDS = float(os.environ.get("TRACING_SECONDS", 0))
SYNC_SECONDS = float(os.environ.get("SYNC_SECONDS", 0))
HOLD = os.environ.get("HOLD")


class Sleeping(keras.layers.Layer):
    '''Needs time for each step or each batch of a validation.'''

    def call(self, inputs, training=False):
        seconds = STEP_SECONDS if training else VALIDATION_SECONDS
        if not seconds and not (training and HOLD):
            return inputs
        def wait(x):
            if not training:
                (DIRECTORY / "validating").touch()
            elif HOLD:
                interruptions.hold(DIRECTORY)
            time.sleep(seconds)
            return x
        outputs = tf.numpy_function(wait, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs


class Counting(keras.layers.Layer):
    '''Counts two for each step, but only on rank 1.'''

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, inputs, training=False):
        if training:
            self.count.assign_add(2.0 * (os.environ.get("OMPI_COMM_WORLD_RANK") == "1"))
        return inputs


class SlowTracing(keras.Model):
    def train_step(self, data):
        (DIRECTORY / f"tracing-{os.environ.get('OMPI_COMM_WORLD_RANK')}").touch()
        time.sleep(TRACING_SECONDS)
        return super().train_step(data)


def slow(shape, classes):
    if SYNC_SECONDS:
        sync = os.fsync
        def slow_sync(descriptor):
            if os.fstat(descriptor).st_size > 5000:  # a checkpoint
                time.sleep(SYNC_SECONDS)
            sync(descriptor)
        os.fsync = slow_sync
    inputs = keras.Input(shape)
    outputs = keras.layers.Dense(classes, "softmax", kernel_initializer="zeros")(Counting()(Sleeping()(inputs)))
    return SlowTracing(inputs, outputs)


"""


@pytest.fixture(scope="module")
def user_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("own")
    (directory / "own.py").write_text(textwrap.dedent(OWN))
    return directory


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A data set with few training examples and many for validation."""
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, count in (("train", TRAINING), ("test", 22_000)):
        arrays[f"x_{part}"] = random.random((count, 4)).astype(np.float32)
        arrays[f"y_{part}"] = random.integers(0, 3, count)
    np.savez(tmp_path / "data.npz", **arrays)
    return tmp_path / "data.npz"


@pytest.fixture
def flags(trainer: Callable[..., list[str]], examples: Path, tmp_path: Path) -> Callable[..., list[str]]:
    data = ("--dataset", "npz", "--data", examples)
    own = ("--threads", 1, "--tensorboard", "none", "--batch-size", BATCH, "--validation-batch-size", 250,
           "--dir", tmp_path)  # fmt: skip
    return lambda *others: trainer(*data, *own, *others)


@pytest.fixture
def environment_of(user_module: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    def variables(**values: object) -> dict[str, str]:
        texts = {name: str(value) for name, value in values.items()}
        path = f"{user_module}:{SHARED['PYTHONPATH']}"
        return {"PYTHONPATH": path, "TEST_DIRECTORY": str(tmp_path), **texts}

    return variables


def terminated(job: Job, rank: int) -> tuple[int, str]:
    """Exit code and output of the job after SIGTERM to this rank."""
    job.send_signal(rank, signal.SIGTERM)
    return job.ended()


def test_sigterm_during_tracing_validation_and_a_slow_write_ends_in_a_checkpoint(
    start: Callable[..., Job], flags: Any, environment_of: Any, tmp_path: Path
) -> None:
    # A long grace period: on a busy machine, tracing and writing need more than the default.
    command = flags("--model", "own:slow", "--epochs", 2, "--grace-seconds", 300)
    job = start(command, 2, environment_of(TRACING_SECONDS=7))
    job.wait_for("tracing-1")  # the other rank may begin earlier
    code, output = terminated(job, 1)
    assert code == 143, output
    first = stopped_step(output)
    # The average of the moving statistics of both ranks.
    assert array(tmp_path / f"checkpoint-0-{first}.h5", "count") == first

    slow = environment_of(VALIDATION_SECONDS=1, SYNC_SECONDS=7)  # a validation takes 44 s
    job = start(command, 2, slow)
    job.wait_for("validating")
    code, output = terminated(job, 1)
    assert code == 143, output
    assert stopped_step(output) == 75
    assert (tmp_path / "checkpoint-1.h5").exists()
    assert "val_loss" not in output


def test_another_job_is_refused_while_a_later_start_of_the_job_continues_and_the_earlier_one_ends(
    start: Callable[..., Job], run: Callable[..., Any], flags: Any, environment_of: Any, tmp_path: Path
) -> None:
    command = flags("--model", "own:slow", "--checkpoint-steps", 3, "--epochs", 1)
    earlier = start(command, 2, environment_of(HOLD="earlier", **JOB))
    earlier.wait_for("earlier-holds")
    other = environment_of(**JOB | {"HOROVODJOB_UID": "4-5-6", "HOROVODJOB_NAME": "copy"})
    copy = run(1, command, other)
    assert copy.code == 1, copy.stdout
    (sentence,) = copy.errors
    assert "attempt 1 of the job training/mnist is active in " in sentence

    later = start(command, 1, environment_of(HOLD="later", HOROVODJOB_ATTEMPT=2, **JOB))
    later.wait_for("later-holds")
    (tmp_path / "earlier-released").touch()
    code, output = earlier.ended()
    (tmp_path / "later-released").touch()
    later_code, later_output = later.ended()
    assert later_code == 0, later_output
    assert re.search(r"^Attempt 2: resuming after epoch 0 and [0-9]+ steps$", later_output, re.MULTILINE)
    assert code == 1, output
    sentences = re.findall(r"^horovodjob_trainer: (.*)$", output, re.MULTILINE)
    assert len(sentences) == 1
    assert re.match(r"attempt 2 of the job training/mnist started later|.*is missing, because a run", sentences[0])
    assert "Traceback" not in output


def uninterrupted(examples: Path, size: int, steps: int) -> tuple[float, Any]:
    """The last learning rate and the weights of softmax regression with Adam, computed without Keras.

    The first steps are those of `size` ranks; one rank takes the others.
    """
    with np.load(examples) as data:
        inputs, labels = np.hstack([data["x_train"], np.ones((TRAINING, 1))]), np.eye(3)[data["y_train"]]
    weights, mean, variance = (np.zeros((inputs.shape[1], 3)) for _ in range(3))
    total = TRAINING * EPOCHS
    position, step, rate = 0, 0, 0.0
    while position < total:
        size = size if step < steps else 1
        positions = position + np.arange(BATCH * size, dtype=np.int64)
        rows = rows_at_positions(positions, samples=TRAINING, seed=1)
        outputs = np.exp(inputs[rows] @ weights)
        gradient = inputs[rows].T @ (outputs / outputs.sum(axis=1, keepdims=True) - labels[rows]) / len(rows)
        rate = LEARNING_RATE * math.sqrt(size) * 0.5 * (1 + math.cos(math.pi * position / total))
        position, step = position + len(rows), step + 1
        mean, variance = 0.9 * mean + 0.1 * gradient, 0.999 * variance + 0.001 * gradient**2
        scale = rate * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weights = weights - scale * mean / (np.sqrt(variance) + 1e-7)
    return rate, weights


def test_a_run_of_two_ranks_resumes_on_one_as_if_nothing_had_changed(
    start: Callable[..., Job], run: Callable[..., Any], flags: Any, environment_of: Any, examples: Path, tmp_path: Path
) -> None:
    command = flags("--model", "own:slow", "--optimizer", "adam", "--schedule", "cosine", "--learning-rate",
                    LEARNING_RATE, "--epochs", EPOCHS, "--checkpoint-steps", 3)  # fmt: skip
    job = start(command, 2, environment_of(STEP_SECONDS=0.03))
    job.wait_for("checkpoint-0-*.h5")
    code, output = terminated(job, 1)
    assert code == 143, output
    ended = run(1, command, environment_of())
    assert ended.code == 0, ended.stderr
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]

    learning_rate, weights = uninterrupted(examples, 2, stopped_step(output))
    assert records[-1]["learningRate"] == pytest.approx(learning_rate, rel=1e-6)
    model = tmp_path / "saved_models" / "keras_npz_trained_model.h5"
    assert np.allclose(np.vstack([array(model, "kernel"), array(model, "bias")]), weights, atol=1e-5)
