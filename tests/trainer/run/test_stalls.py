"""A training that makes no progress: which rank is named, and how the attempt ends."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.reporting.watch_process import PAUSE_SECONDS
from trainer.support.background_job import Job
from trainer.support.hanging_share import hanging_share

PROGRAM = Path(__file__).parent / "programs" / "stalls.py"
SECONDS = {"HVD_STALL_SECONDS": "6"}
POD = "the-pod"
OTHER = "; the other rank waits in the exchange"
PLACE = r"disturb in stalls\.py:\d+"
HELD = """
import pathlib
import time
import keras
import tensorflow as tf

class Held(keras.layers.Layer):
    def call(self, inputs, training=False):
        def wait(x):
            while pathlib.Path(__file__).with_name("held").exists():
                time.sleep(0.05)
            return x
        outputs = tf.numpy_function(wait, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs

def build(shape, classes):
    layers = [keras.layers.Flatten(), Held(), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential([keras.Input(shape), *layers])
"""


def send(directory: Path, rank: int, number: signal.Signals) -> None:
    os.kill(int((directory / f"process-{rank}").read_text()), number)


def watch_processes(rank: int) -> list[int]:
    """The watch process of a rank, by their process IDs."""
    children = map(int, Path(f"/proc/{rank}/task/{rank}/children").read_text().split())
    return [each for each in children if b"watch_process" in Path(f"/proc/{each}/cmdline").read_bytes()]


def until_stall(job: Job, text: str) -> None:
    """Wait for the report of a stall with this text. On a busy machine, others can precede it."""
    since = r"no step since \d\d:\d\d:\d\dZ \(usual: [\d.]+ s\)"
    job.until(rf"horovodjob: TrainingStalled: {since}: {text}$")


@pytest.fixture
def started(start: Callable[..., Job], preloaded_python: list[str], tmp_path: Path) -> Callable[..., Job]:
    """Starts a training in one of the ways, and waits until steps are completed: before, the limit is that of a start.

    Further arguments are variables.
    """

    def begin(way: str, ranks: int = 2, **variables: str) -> Job:
        environment = {"HOROVODJOB_POD": POD, **SECONDS, **variables}
        job = start([*preloaded_python, str(PROGRAM), str(tmp_path), way], ranks, environment)
        job.until("TRAINS")
        return job

    return begin


def test_the_rank_that_the_others_wait_for_is_named_until_it_continues(
    started: Callable[..., Job], tmp_path: Path
) -> None:
    job = started("fit")
    for rank in (0, 1):
        (tmp_path / f"request-{rank}").write_text("stop")
        until_stall(job, f"rank {rank} on {POD} is stopped{OTHER}")
        send(tmp_path, rank, signal.SIGCONT)
        job.until("the training continues")
    request, fifo = tmp_path / "request-1", tmp_path / "fifo-1"
    ends: dict[str, Callable[[], object]] = {
        "python": request.unlink,
        "native": lambda: fifo.write_bytes(b""),
    }
    for kind, end in ends.items():
        request.write_text(kind)
        does = (
            "runs native code that keeps Python from running, called by"
            if kind == "native"
            else "is computing, or reads its next batch, at"
        )
        until_stall(job, rf"rank 1 on {POD} {does} {PLACE}{OTHER}")
        end()
        job.until("the training continues")
    share = tmp_path / "share-1"
    with hanging_share(share):
        call = rf"waits in the kernel \(\w+\), with {share}/examples"
        until_stall(job, rf"rank 1 on {POD} {call}{OTHER}")
    job.until("the training continues")
    (tmp_path / "end").touch()
    code, output = job.ended()
    assert (code, output.count("ENDED")) == (0, 2), output


@pytest.mark.parametrize("way", ["loop", "mpi4py"])
def test_other_ways_to_train_are_watched(started: Callable[..., Job], tmp_path: Path, way: str) -> None:
    job = started("fit", HOROVODJOB_EXCHANGE="mpi4py") if way == "mpi4py" else started(way)
    (tmp_path / "request-1").write_text("stop")
    until_stall(job, f"rank 1 on {POD} is stopped{OTHER}")
    send(tmp_path, 1, signal.SIGCONT)
    job.until("the training continues")
    if way == "loop":
        (tmp_path / "request-1").write_text("skip")
        place = r"rank \d after step \d+, at <module> in stalls\.py:\d+"
        text = rf"all 2 ranks wait in the exchange, but not at the same place \({place}; {place}\): a rank may have "
        until_stall(job, f"{text}skipped a step or a call")


def test_a_share_that_hangs_at_the_start_of_a_run_is_named_before_the_limit_of_the_start(
    start: Any, trainer: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    run = ("--dir", tmp_path / "run", "--logs", tmp_path / "logs", "--tensorboard", "none", "--threads", 1)
    variables = {"HOROVODJOB_POD": POD, **SECONDS}
    with hanging_share(tmp_path / "run"):
        job = start(trainer("--dataset", "digits", "--epochs", 1, "--max-steps", 2, *run), 2, variables)
        stall = r"TrainingStalled: no step since \d\d:\d\d:\d\dZ"
        job.until(rf"{stall}: rank 0 on {POD} waits in the kernel \(\w+\), with {tmp_path}/run\S*{OTHER}$")


def test_a_rank_alone_is_watched_until_its_last_checkpoint(started: Callable[..., Job], tmp_path: Path) -> None:
    job = started("callback", ranks=1)
    (tmp_path / "request-0").write_text("python")
    until_stall(job, rf"rank 0 on {POD} is computing, or reads its next batch, at {PLACE}")
    (tmp_path / "request-0").unlink()
    job.until("the training continues")
    with hanging_share(tmp_path / "run"):
        (tmp_path / "end").touch()  # the last checkpoint is written then
        until_stall(job, rf"rank 0 on {POD} waits in the kernel \(\w+\), with \S*/run/\S*")


def test_the_trainer_is_watched_until_its_models_are_saved(
    start: Any, trainer: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(HELD)
    held, output = tmp_path / "held", tmp_path / "out"
    held.touch()
    data = ("--dataset", "digits", "--model", "own:build", "--batch-size", 256, "--max-steps", 4)
    variables = {"HOROVODJOB_POD": POD, "PYTHONPATH": str(tmp_path), **SECONDS}
    job = start(trainer(*data, "--dir", output, "--tensorboard", "none", "--threads", 1), 1, variables)
    job.wait_for("out/.horovodjob-run.json")
    with hanging_share(output / "saved_models"):
        held.unlink()
        until_stall(job, rf"rank 0 on {POD} waits in the kernel \(\w+\), with {output}/saved_models\S*")


def test_a_deadline_ends_the_attempt_with_the_stacks_of_all_ranks(started: Callable[..., Job], tmp_path: Path) -> None:
    deadline = 12
    (tmp_path / "token").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as operator:  # accepts connections, and answers nothing
        job = started(
            "fit",
            HOROVODJOB_PROGRESS_DEADLINE=f"{deadline}",
            HOROVODJOB_PROGRESS_URL=f"http://127.0.0.1:{operator.getsockname()[1]}/progress",
            HOROVODJOB_PROGRESS_TOKEN_FILE=str(tmp_path / "token"),
            AZ_BATCHAI_STDOUTERR_DIR=str(tmp_path),
        )
        code, output = ended_by_deadline(job, tmp_path, deadline)
    assert code == 137
    assert re.search(
        rf"horovodjob: ProgressDeadlineExceeded: no step since .*: rank 0 on {POD} runs native code that keeps Python "
        rf"from running, called by {PLACE}{OTHER}; the attempt ends after {deadline} s without a step",
        output,
    )
    stacks = (tmp_path / "stacks-attempt-1.txt").read_text()
    assert stacks in output
    assert re.search(r"^rank 0, innermost frame first:\n(  .*\n)*?  .*in disturb\n", stacks, re.MULTILINE)
    assert re.search(r"^rank 1, innermost frame first:\n  .*tensorflow", stacks, re.MULTILINE)


def ended_by_deadline(job: Job, tmp_path: Path, deadline: int) -> tuple[int, str]:
    """The end of a training after a pause of a whole pod, and a hang of its rank."""
    rank_0 = int((tmp_path / "process-0").read_text())
    pod = [rank_0, *watch_processes(rank_0)]
    assert len(pod) == 2
    for process in pod:
        os.kill(process, signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS + deadline)  # of the whole pod, longer than the deadline
    for process in reversed(pod):
        os.kill(process, signal.SIGCONT)
    (tmp_path / "request-0").write_text("native")
    return job.ended()
