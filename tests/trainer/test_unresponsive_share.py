"""A share that does not respond while a checkpoint is written."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.checkpoint import writer as writer_module
from horovodjob_trainer.checkpoint.layout import training_variables
from trainer.checkpoints import log_lines, network, open_directory, state, write, writer

OWN = """
import os, pathlib, time
import keras

sync, RESPONDS = os.fsync, pathlib.Path(__file__).with_name("responds")

def hanging_sync(descriptor):
    if os.fstat(descriptor).st_size > 50000:  # a checkpoint
        while not RESPONDS.exists():
            time.sleep(0.05)
    sync(descriptor)

def build(shape, classes):
    os.fsync = hanging_sync
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential([keras.Input(shape), *layers])
"""


@pytest.fixture(autouse=True)
def clear_log_lines() -> None:
    log_lines.clear()


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Whether the share responds. A write waits for it."""
    responds = threading.Event()
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.1)
    responds.set()
    yield responds
    responds.set()


@pytest.fixture
def hanging(tmp_path: Path, share: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A writer, whose write of the checkpoint of epoch 2 does not end, and its model."""
    output, model, sync = open_directory(tmp_path, resume=False), network(), os.fsync
    write(output, model, 1)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (share.wait(), sync(descriptor)))
    checkpoints = writer(output, model, failure_seconds=1)
    share.clear()
    checkpoints.write(training_variables(model), state(2, step=20), (2, 0))
    return checkpoints, training_variables(model)


def test_the_next_checkpoint_is_skipped_with_one_log_line_and_written_when_the_share_responds(
    hanging: Any, share: threading.Event, tmp_path: Path
) -> None:
    checkpoints, variables = hanging
    for epoch in (3, 4):
        checkpoints.write(variables, state(epoch, step=10 * epoch), (epoch, 0))
    assert len(log_lines) == 1
    assert (
        f"without the checkpoint {tmp_path}/checkpoint-3.h5: the write of {tmp_path}/checkpoint-2.h5 has"
        in log_lines[0]
    )
    assert not checkpoints.is_due
    share.set()
    checkpoints.wait()
    assert checkpoints.is_due, "the state that was skipped is written soon"
    checkpoints.write(variables, state(5, step=50), (5, 0))
    checkpoints.wait()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {f"checkpoint-{epoch}.h5" for epoch in (1, 2, 5)}
    assert checkpoints.problem is None


def test_a_write_that_does_not_end_for_too_long_ends_the_run(hanging: Any) -> None:
    checkpoints, _ = hanging
    assert checkpoints.problem is None
    checkpoints.wait()
    assert checkpoints.is_writing
    assert "checkpoint-2.h5 has not ended for 1 s, because its volume does not respond" in str(checkpoints.problem)
    assert "--checkpoint-failure-seconds" in str(checkpoints.problem)


def test_after_sigterm_a_write_that_does_not_end_is_abandoned_at_the_deadline(hanging: Any) -> None:
    checkpoints, variables = hanging
    start = time.monotonic()
    checkpoints.finish(variables, state(3, step=30), (3, 0), deadline=start + 0.3)
    assert 0.3 <= time.monotonic() - start < 30
    assert "stopped after step 30, of which there is no checkpoint" in checkpoints.resume_point(30)
    assert "does not respond" in checkpoints.resume_point(30)


def test_two_ranks_train_while_the_share_hangs_and_end_with_a_sentence(train_digits: Any, tmp_path: Path) -> None:
    ended = train_digits(2, OWN, "--epochs", 100_000, "--checkpoint-failure-seconds", 6, "--logs", tmp_path)
    assert ended.code == 1
    (sentence,) = ended.errors
    assert "checkpoint-1.h5 has not ended for " in sentence
    assert "Training continues without the checkpoint " in ended.stdout
    assert ended.stdout.count("val_loss") > 2
