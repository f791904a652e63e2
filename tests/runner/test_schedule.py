"""A run of the stages is green only if every stage of it is recorded as passed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stages.schedule import Outcome, Schedule, Stage


def stage(name: str, program: str = "", *, needs: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Stage:
    return Stage(name, (sys.executable, "-c", program), needs, after)


def outcomes(stages: list[Stage], logs: Path, at_most: int = 2) -> dict[str, Outcome]:
    schedule = Schedule(stages, logs, at_most=at_most)
    assert schedule.run() == all(result.outcome is Outcome.PASSED for result in schedule.results.values())
    return {name: result.outcome for name, result in schedule.results.items()}


def test_stages_that_exit_with_zero_pass(tmp_path: Path) -> None:
    assert outcomes([stage("a"), stage("b", needs=("a",))], tmp_path) == {"a": "passed", "b": "passed"}


@pytest.mark.parametrize(
    "program",
    ["raise SystemExit(3)", "raise RuntimeError", "import os; os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"],
)
def test_a_stage_that_exits_in_any_other_way_fails_the_run(tmp_path: Path, program: str) -> None:
    assert outcomes([stage("bad", program), stage("good")], tmp_path) == {"bad": "FAILED", "good": "passed"}


def test_a_stage_that_cannot_be_started_fails_the_run(tmp_path: Path) -> None:
    assert outcomes([Stage("absent", ("/no/such/program",))], tmp_path) == {"absent": "FAILED"}


def test_a_stage_that_needs_a_failed_stage_is_recorded_as_not_run(tmp_path: Path) -> None:
    stages = [stage("bad", "raise SystemExit(1)"), stage("next", needs=("bad",)), stage("last", needs=("next",))]
    assert outcomes(stages, tmp_path) == {"bad": "FAILED", "next": "NOT RUN", "last": "NOT RUN"}


def test_a_stage_with_a_need_outside_the_run_is_recorded_as_not_run(tmp_path: Path) -> None:
    assert outcomes([stage("alone", needs=("nobody",))], tmp_path) == {"alone": "NOT RUN"}


def test_a_run_without_stages_does_not_pass(tmp_path: Path) -> None:
    assert Schedule([], tmp_path, at_most=1).run() is False


def test_a_stage_after_a_failed_one_runs_if_it_does_not_need_it(tmp_path: Path) -> None:
    stages = [stage("bad", "raise SystemExit(1)"), stage("clean", after=("bad",))]
    assert outcomes(stages, tmp_path) == {"bad": "FAILED", "clean": "passed"}


def test_the_number_of_concurrent_stages_is_limited(tmp_path: Path) -> None:
    count = (
        "import os, pathlib, time; here = pathlib.Path({!r}); (here / str(os.getpid())).touch(); time.sleep(0.3); "
        "running = len(list(here.iterdir())); (here / str(os.getpid())).unlink(); raise SystemExit(running > 2)"
    )
    (tmp_path / "running").mkdir()
    stages = [stage(f"s{number}", count.format(str(tmp_path / "running"))) for number in range(5)]
    assert set(outcomes(stages, tmp_path).values()) == {"passed"}


def test_the_output_of_a_failed_stage_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes([stage("bad", "print('its own words'); raise SystemExit(1)")], tmp_path)
    assert "its own words" in capsys.readouterr().out
