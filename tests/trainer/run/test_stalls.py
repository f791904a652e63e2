"""A training that makes no progress: which rank is named, and how the attempt ends."""

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.support.background_job import Job
from trainer.support.waiting import TIMEOUT_SECONDS

PROGRAM = Path(__file__).parent / "programs" / "stalls.py"
SECONDS = {"HVD_STALL_SECONDS": "12"}  # longer than a rank must be without Python to run native code
POD = "the-pod"


def send(directory: Path, rank: int, number: signal.Signals) -> None:
    os.kill(int((directory / f"process-{rank}").read_text()), number)


class Log:
    """The lines of a job as they come."""

    def __init__(self, job: Job) -> None:
        self.job, self.lines = job, list[str]()

    def until(self, pattern: str) -> str:
        """The next line with this pattern."""
        assert self.job.process.stdout is not None
        timer = threading.Timer(TIMEOUT_SECONDS, self.job.process.kill)
        timer.start()
        try:
            for line in self.job.process.stdout:
                self.lines.append(line.rstrip("\n"))
                if re.search(pattern, line):
                    return line
        finally:
            timer.cancel()
        raise AssertionError(f"no line has {pattern!r}:\n" + "\n".join(self.lines))


@pytest.fixture
def started(start: Any, preloaded_python: list[str], tmp_path: Path) -> Callable[..., Log]:
    def begin(way: str, **variables: str) -> Log:
        environment = {"HOROVODJOB_POD": POD, **SECONDS, **variables}
        return Log(start([*preloaded_python, str(PROGRAM), str(tmp_path), way], extra=environment))

    return begin


@pytest.fixture
def fit(started: Callable[..., Log]) -> Log:
    return started("fit")


def stall(log: Log) -> str:
    line = log.until("TrainingStalled")
    found = re.search(r"horovodjob: TrainingStalled: no step since \d\d:\d\d:\d\dZ \(usual: [\d.]+ s\): (.*)", line)
    assert found, line
    return found[1]


def test_the_rank_that_the_others_wait_for_is_named_until_it_continues(fit: Log, tmp_path: Path) -> None:
    job = fit.job
    wait_until_it_trains(fit)
    for rank in (0, 1):
        send(tmp_path, rank, signal.SIGSTOP)
        assert stall(fit) == f"rank {rank} on {POD} is stopped; the other rank waits in the exchange"
        send(tmp_path, rank, signal.SIGCONT)
        fit.until("the training continues")
    hang = tmp_path / "hang-1"
    hang.touch()
    text = "is computing, or reads its next batch, at hang_on_request in stalls.py:"
    assert re.fullmatch(rf"rank 1 on {POD} {text}\d+; the other rank waits in the exchange", stall(fit))
    hang.unlink()
    fit.until("the training continues")
    native = tmp_path / "native-1"
    os.mkfifo(native)
    text = "runs native code that keeps Python from running, called by hang_on_request in stalls.py:"
    assert re.fullmatch(rf"rank 1 on {POD} {text}\d+; the other rank waits in the exchange", stall(fit))
    native.write_bytes(b"")
    fit.until("the training continues")
    (tmp_path / "end").touch()
    code, output = job.ended()
    assert (code, output.count("ENDED")) == (0, 2), output


@pytest.mark.parametrize("way", ["callback", "loop"])
def test_runs_of_scripts_are_watched(started: Callable[..., Log], tmp_path: Path, way: str) -> None:
    log = started(way)
    wait_until_it_trains(log)
    send(tmp_path, 1, signal.SIGSTOP)
    assert stall(log) == f"rank 1 on {POD} is stopped; the other rank waits in the exchange"
    send(tmp_path, 1, signal.SIGCONT)
    log.until("the training continues")


def test_a_deadline_ends_the_attempt_with_the_stacks_of_all_ranks(started: Callable[..., Log], tmp_path: Path) -> None:
    log = started("fit", HOROVODJOB_PROGRESS_DEADLINE="3", AZ_BATCHAI_STDOUTERR_DIR=str(tmp_path))
    wait_until_it_trains(log)
    (tmp_path / "hang-0").touch()
    code, output = log.job.ended()
    assert code == 137
    assert re.search(
        rf"horovodjob: ProgressDeadlineExceeded: no step since .*: rank 0 on {POD} .*, at hang_on_request in stalls.py:"
        r"\d+; the other rank waits in the exchange; the attempt ends after 3 s without a step",
        output,
    )
    stacks = (tmp_path / "stacks-attempt-1.txt").read_text()
    assert stacks in output
    assert re.search(r"^rank 0, innermost frame first:\n(  .*\n)*?  .*in hang_on_request\n", stacks, re.MULTILINE)
    assert re.search(r"^rank 1, innermost frame first:\n  .*tensorflow", stacks, re.MULTILINE)


def wait_until_it_trains(log: Log) -> None:
    """Wait until steps are completed: before, the limit is that of a start."""
    log.until("TRAINS")
