"""A rank that is slower than the others, in each kind of script: real ranks, and the reports that the operator gets."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.reporting.operator_server import OperatorServer
from trainer.support.background_job import Job
from trainer.support.waiting import TIMEOUT_SECONDS

PROGRAM = Path(__file__).parent / "programs" / "slow_rank.py"
RANKS, SECONDS = 2, 9


class Training:
    """Ranks that train, and the reports of rank 0."""

    def __init__(self, job: Job, operator: OperatorServer, directory: Path) -> None:
        self.job, self.operator, self.directory = job, operator, directory

    def slow_ranks(self) -> list[Any]:
        """The slow rank of each report."""
        return [body["usage"].get("slowestRank") for _, body in self.operator.reports if body.get("usage")]

    def until(self, is_reached: Callable[[list[Any]], bool]) -> list[Any]:
        """The slow ranks of the reports from now on, until this is so."""
        before, deadline = len(self.slow_ranks()), time.monotonic() + TIMEOUT_SECONDS
        with self.operator.changed:
            while not is_reached(found := self.slow_ranks()[before:]):
                assert self.job.process.poll() is None, self.job.output()
                assert time.monotonic() < deadline, self.job.output()
                self.operator.changed.wait(1)
        return found

    def check_naming(self, rank: int, part: str, section: dict[str, str]) -> None:
        """A rank that becomes slow is named after the time for that, and not any more when it is fast."""
        (self.directory / f"{part}-{rank}").touch()
        began = time.monotonic()
        *before, found = self.until(lambda found: any(found))
        assert time.monotonic() - began >= SECONDS * 2 / 3
        assert not any(before)
        assert found == {"rank": rank, "pod": "the-pod", "ratio": found["ratio"]} | section
        assert found["ratio"] > 1.5
        (self.directory / f"{part}-{rank}").unlink()
        self.until(lambda found: None in found)


@pytest.fixture
def operator() -> Iterator[OperatorServer]:
    server = OperatorServer()
    yield server
    server.server.shutdown()


@pytest.fixture
def train(start: Any, preloaded_python: list[str], operator: OperatorServer, tmp_path: Path) -> Callable[..., Training]:
    (tmp_path / "token").write_text("secret")
    variables = {
        "HOROVODJOB_POD": "the-pod",
        "HOROVODJOB_PROGRESS_URL": operator.url,
        "HOROVODJOB_PROGRESS_TOKEN_FILE": str(tmp_path / "token"),
        "HVD_SLOW_RANK_SECONDS": str(SECONDS),
        "SLOW_RANK_DIRECTORY": str(tmp_path),
    }

    def begin(way: str) -> Training:
        return Training(start([*preloaded_python, str(PROGRAM), way], RANKS, variables), operator, tmp_path)

    return begin


def test_slow_ranks_of_a_loop_are_named_with_their_section_until_they_are_fast(train: Callable[..., Training]) -> None:
    training = train("loop")
    assert not any(training.until(lambda found: len(found) > 4)), "all are slow, with noise"
    training.check_naming(1, "input", {"section": "input"})
    training.check_naming(0, "compute", {"section": "compute"})
    training.job.until("SlowRank: rank 1 on the-pod needs .*, most of it in its input")
    training.job.until("SlowRank: rank 0 on the-pod needs .*, most of it in its compute")


def test_a_slow_rank_in_fit_is_named_without_a_section(train: Callable[..., Training]) -> None:
    train("fit").check_naming(1, "input", {})
