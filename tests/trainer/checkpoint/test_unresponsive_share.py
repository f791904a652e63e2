"""A share that does not respond while a checkpoint is written."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.checkpoint import writer as writer_module
from horovodjob_trainer.checkpoint.checkpoint_file import training_variables
from trainer.checkpoint.checkpoints import log_lines, network, open_directory, state, write, writer
from trainer.support.background_job import stopped_step
from trainer.support.waiting import TIMEOUT_SECONDS

# The write of the first checkpoint never ends. The clock of the writer stands until the ranks have trained for three
# epochs, because on a busy machine --checkpoint-failure-seconds can pass earlier. Without this limit, the ranks would
# wait for the write longer than the test.
OWN = """
import os, pathlib, threading, time, types
import keras
from horovodjob_trainer.checkpoint import writer

PROGRESS = pathlib.Path(__file__).with_name("out") / "progress.jsonl"
sync, clock = os.fsync, types.SimpleNamespace(now=0.0)

def hanging_sync(descriptor):
    if os.fstat(descriptor).st_size > 50000:  # a checkpoint
        while not PROGRESS.exists() or PROGRESS.read_text().count("val_loss") < 3:
            time.sleep(0.05)
        clock.now += 3600
        threading.Event().wait()
    sync(descriptor)

def build(shape, classes):
    os.fsync, writer.RETRY_SECONDS = hanging_sync, 3600
    writer.time = types.SimpleNamespace(monotonic=lambda: clock.now)
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential([keras.Input(shape), *layers])
"""

# The write of the first checkpoint ends some seconds after SIGTERM, while the training waits with the next one. For
# this time, a rank that makes no progress gives up at once.
SLOW = """
import os, signal, sys, threading, time
import keras
from horovodjob_trainer.run import termination

sync = os.fsync

def is_waiting():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and frame.f_code.co_name != "_join":
        frame = frame.f_back
    return frame is not None

def slow_sync(descriptor):
    if os.fstat(descriptor).st_size > 50000:  # a checkpoint
        os.fsync = sync
        while not is_waiting():
            time.sleep(0.05)
        termination.STALLED_SECONDS = termination.ANSWER_SECONDS = 0.0
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(3)
        termination.STALLED_SECONDS = 3600.0
    sync(descriptor)

def build(shape, classes):
    os.fsync = slow_sync
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
    """Starts a write of the checkpoint of epoch 2 that does not end. Returns the writer and the variables."""

    def started(failure_seconds: float) -> Any:
        output, model, sync = open_directory(tmp_path, resume=False), network(), os.fsync
        write(output, model, 1)
        monkeypatch.setattr(os, "fsync", lambda descriptor: (share.wait(), sync(descriptor)))
        checkpoints = writer(output, model, failure_seconds=failure_seconds)
        share.clear()
        checkpoints.write(training_variables(model), state(2, step=20), (2, 0))
        return checkpoints, training_variables(model)

    return started


def test_the_next_checkpoint_is_skipped_with_one_log_line_and_written_when_the_share_responds(
    hanging: Any, share: threading.Event, tmp_path: Path
) -> None:
    checkpoints, variables = hanging(failure_seconds=TIMEOUT_SECONDS)
    for epoch in (3, 4):
        checkpoints.write(variables, state(epoch, step=10 * epoch), (epoch, 0))
    assert len(log_lines) == 1
    assert (
        f"without the checkpoint {tmp_path}/checkpoint-3.h5: the write of {tmp_path}/checkpoint-2.h5 has"
        in log_lines[0]
    )
    assert not checkpoints.is_due
    assert checkpoints.problem is None
    share.set()
    checkpoints.wait()
    assert checkpoints.is_due, "the state that was skipped is written soon"
    checkpoints.write(variables, state(5, step=50), (5, 0))
    checkpoints.wait()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {f"checkpoint-{epoch}.h5" for epoch in (1, 2, 5)}
    assert checkpoints.problem is None


def test_a_write_that_does_not_end_for_too_long_ends_the_run(hanging: Any) -> None:
    checkpoints, _ = hanging(failure_seconds=1)
    checkpoints.wait()
    assert checkpoints.is_writing
    problem = (
        r"checkpoint-2\.h5 has not ended for \d+ s, because its volume is slow or does not respond, so the run ends"
    )
    assert re.search(problem, str(checkpoints.problem))
    assert "--checkpoint-failure-seconds" in str(checkpoints.problem)


def test_after_sigterm_a_write_that_does_not_end_is_abandoned_at_the_deadline(hanging: Any) -> None:
    checkpoints, variables = hanging(failure_seconds=TIMEOUT_SECONDS)
    start = time.monotonic()
    checkpoints.finish(variables, state(3, step=30), (3, 0), deadline=start + 0.3)
    assert 0.3 <= time.monotonic() - start < 30
    assert "stopped after step 30, of which there is no checkpoint" in checkpoints.resume_point(30)
    assert "does not respond" in checkpoints.resume_point(30)


def test_two_ranks_train_while_the_share_hangs_and_end_with_a_sentence(train_digits: Any, tmp_path: Path) -> None:
    ended = train_digits(2, OWN, "--epochs", 100_000, "--no-augment", "--checkpoint-failure-seconds", 1)
    assert ended.code == 1
    (sentence,) = ended.errors
    assert "checkpoint-1.h5 has not ended for 3600 s, because its volume is slow or does not respond" in sentence
    assert "Training continues without the checkpoint " in ended.stdout
    assert ended.stdout.count("val_loss") > 2


def test_sigterm_while_the_training_waits_for_a_slow_write_ends_with_the_next_checkpoint(train_digits: Any) -> None:
    ended = train_digits(1, SLOW, "--epochs", 100_000, "--no-augment", "--grace-seconds", TIMEOUT_SECONDS)
    assert ended.code == 128 + signal.SIGTERM
    assert stopped_step(ended.stdout)
