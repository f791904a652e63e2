"""Ranks join and fail with a real `horovodrun`: training continues and ends with the result of one process."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.support.waiting import TIMEOUT_SECONDS

PROGRAM = Path(__file__).parent / "programs" / "elastic_steps.py"


def steps(directory: Path) -> list[dict[str, int]]:
    """The steps that the ranks have written: position after the step, size of the job, rank and process."""
    lines = [line for path in directory.glob("steps-*") for line in path.read_text().split("\n")[:-1]]
    return [dict(zip(("position", "size", "rank", "pid"), map(int, line.split()), strict=True)) for line in lines]


def wait_for(claim: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> Any:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (found := claim()):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found


def continues_alone(done: list[dict[str, int]]) -> bool:
    """Whether rank 0 alone has passed the last position of both ranks."""
    together = max(step["position"] for step in done if step["size"] == 2)
    return max(step["position"] for step in done if step["size"] == 1) > together


@pytest.fixture(scope="module")
def found(horovodrun: Any, preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of rank 0 after a second rank has joined and was killed between two commits."""
    directory = tmp_path_factory.mktemp("elastic")
    hosts, log = directory / "hosts", directory / "log"
    hosts.write_text("localhost:1\n")
    with horovodrun(directory, [*preloaded_python, str(PROGRAM), str(directory)]) as process:
        wait_for(lambda: len(steps(directory)) > 9, process, log)
        hosts.write_text("localhost:1\n127.0.0.1:1\n")
        wait_for(lambda: [step for step in steps(directory) if step["rank"] == 1][9:], process, log)
        (directory / "kill").touch()
        wait_for(lambda: continues_alone(steps(directory)), process, log)
        (directory / "finish").touch()
        wait_for((directory / "found.json").exists, process, log)
        return {**json.loads((directory / "found.json").read_text()), "steps": steps(directory)}


def test_a_job_grows_and_survives_the_kill_of_a_rank(found: dict[str, Any]) -> None:
    assert found["sizes"] == [1, 2, 1]
    assert {step["size"] for step in found["steps"]} == {1, 2}


def test_the_two_steps_since_the_last_commit_are_repeated_and_none_is_lost(found: dict[str, Any]) -> None:
    positions = [step["position"] for step in found["steps"] if step["rank"] == 0]
    assert len(positions) - len(set(positions)) == 2
    assert found["position"] == max(step["position"] for step in found["steps"])
    assert found["trained"] > 0.01
    assert found["difference"] < 1e-4 * found["trained"]


def test_fit_resumes_in_the_epoch_and_at_the_batch_of_the_last_commit(found: dict[str, Any]) -> None:
    assert found["fit"] == {"epochs": 3, "batch": 0, "iterations": 24}
