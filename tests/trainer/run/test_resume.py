"""A run that is killed or terminated ends with the same bits as an uninterrupted one, with the recipe of today."""

import json
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trainer.support.arrays import assert_same_bits
from trainer.support.background_job import Job
from trainer.support.interruptions import SHARED, killed_at

MODEL = "saved_models/keras_cifar10_trained_model.h5"
RECIPE = (
    "--optimizer", "lars", "--learning-rate", 2, "--weight-decay", 1e-4, "--schedule", "cosine", "--warmup-epochs", 1,
    "--label-smoothing", 0.1, "--ema", 0.9, "--mixup", 0.2, "--cutmix", 1,
)  # fmt: skip
CHECKPOINT_STEPS, STEPS_PER_EPOCH, EPOCHS, BATCH, ROWS = 3, 10, 3, 8, 32
OWN = """
import keras
import tensorflow as tf
from trainer.support.interruptions import reach, watch_files


class Reaching(keras.layers.Layer):
    def call(self, inputs, training=False):
        def reach_place(inputs):
            reach("step" if training else "validation")
            return inputs
        outputs = tf.numpy_function(reach_place, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs


def build(shape, classes):
    watch_files()
    layers = keras.layers
    return keras.Sequential([
        keras.Input(shape), Reaching(), layers.Conv2D(4, 3, strides=4, activation="relu"),
        layers.BatchNormalization(), layers.Dropout(0.25), layers.Flatten(), layers.Dense(classes, "softmax"),
    ])
"""


@pytest.fixture(scope="module")
def archive(make_archive: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "archive.tar.gz"
    make_archive(path, rows=ROWS)  # in each of five files
    path.with_name("own.py").write_text(OWN)
    return path


def variables(archive: Path, **others: str) -> dict[str, str]:
    return {"PYTHONPATH": f"{archive.parent}:{SHARED['PYTHONPATH']}", **others}


@pytest.fixture(scope="module")
def flags(archive: Path) -> tuple[object, ...]:
    data = ("--archive", archive, "--archive-sha256", "any", "--model", "own:build")
    exact = ("--deterministic", "--threads", 1, "--checkpoint-steps", CHECKPOINT_STEPS, "--epochs", EPOCHS)
    return (*data, *exact, *RECIPE, "--batch-size", BATCH, "--dir")


@pytest.fixture(scope="module")
def command(trainer: Callable[..., list[str]], flags: tuple[object, ...]) -> Callable[[Path], list[str]]:
    return partial(trainer, *flags)


@pytest.fixture
def started(start: Callable[..., Job], command: Any, archive: Path, tmp_path: Path) -> Callable[..., Job]:
    """Starts two ranks, of which one sends a signal to itself in a step and creates the file `signalled`."""

    def job(signal_name: str, *, rank: int, step: int) -> Job:
        interrupt = {"INTERRUPT": f"{signal_name} step {step}", "INTERRUPT_RANK": str(rank)}
        return start(command(tmp_path), 2, variables(archive, INTERRUPT_FILE=str(tmp_path / "signalled"), **interrupt))

    return job


@pytest.fixture(scope="module")
def train(run: Callable[..., Any], command: Any, archive: Path) -> Callable[..., Any]:
    """Trains in this directory until the end."""

    def ended(directory: Path, ranks: int = 2, **others: str) -> Any:
        return run(ranks, command(directory), variables(archive, **others))

    return ended


@pytest.fixture(scope="module")
def uninterrupted(train: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp("uninterrupted")
    return train(directory), directory


def epoch_lines(output: str) -> list[str]:
    """The log lines at the end of each epoch, without the speed."""
    lines = [line for line in output.splitlines() if f" {STEPS_PER_EPOCH}/{STEPS_PER_EPOCH} " in line]
    return [re.sub(" [0-9]+ images/s$", "", line) for line in lines]


def test_a_run_that_is_killed_at_each_place_ends_with_the_same_bits(train: Callable[..., Any], tmp_path: Path) -> None:
    """In a write, after its renaming, in a validation, and at the end."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(whole, 1).code == 0
    places = ("write 20", "replaced checkpoint-.* 2", "validation 1", f"replace {Path(MODEL).name} 1")
    ended = killed_at(partial(train, killed, 1), *places)
    assert ended.code == 0, ended.stderr
    assert_same_bits(killed / MODEL, whole / MODEL)
    records = [json.loads(line) for line in (killed / "progress.jsonl").read_text().splitlines()]
    assert {each["epoch"] for each in records if "val_loss" in each["metrics"]} == set(range(1, EPOCHS + 1))


def test_a_run_of_which_a_rank_is_stopped_and_another_terminated_ends_with_the_same_bits(
    started: Callable[..., Job], uninterrupted: tuple[Any, Path], train: Callable[..., Any], tmp_path: Path
) -> None:
    # A rank that waits for a stopped one ends on SIGTERM.
    job = started("SIGSTOP", rank=0, step=10)
    job.wait_for("signalled")
    job.send_signal(1, signal.SIGTERM)
    code, output = job.ended()
    assert code == 143, output
    newest = max(tmp_path.glob("checkpoint-*.h5"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-5000])

    resumed = train(tmp_path, HOROVODJOB_ATTEMPT="2")
    assert resumed.code == 0, resumed.stderr
    assert f"Skipping the checkpoint {newest}, which cannot be read: " in resumed.stdout
    assert re.search(r"^Attempt 2: resuming after epoch [01]( and [0-9]+ steps?)?$", resumed.stdout, re.MULTILINE)
    assert_same_bits(tmp_path / MODEL, uninterrupted[1] / MODEL)
    # The first logged epoch is incomplete. Later validations equal those of the uninterrupted run.
    ends, known = (
        [line.partition("val_loss")[2] for line in epoch_lines(each.stdout)] for each in (resumed, uninterrupted[0])
    )
    assert ends == known[-len(ends) :]
