"""A run of the stages passes only if every stage is recorded as passed."""

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


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_stage_that_exits_in_any_other_way_fails_the_run_and_shows_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    stages = [stage("bad", f"print('its own words', flush=True); {program}"), stage("good")]
    assert outcomes(stages, tmp_path) == {"bad": "FAILED", "good": "passed"}
    assert "its own words" in capsys.readouterr().out


def test_a_stage_that_cannot_be_started_fails_the_run(tmp_path: Path) -> None:
    assert outcomes([Stage("absent", ("/no/such/program",))], tmp_path) == {"absent": "FAILED"}


def test_what_needs_a_failed_or_missing_stage_does_not_run_and_what_is_after_it_does(tmp_path: Path) -> None:
    stages = [stage("bad", "raise SystemExit(1)"), stage("next", needs=("bad",)), stage("last", needs=("next",))]
    stages += [stage("clean", after=("bad",)), stage("alone", needs=("nobody",))]
    expected = {"bad": "FAILED", "next": "NOT RUN", "last": "NOT RUN", "clean": "passed", "alone": "NOT RUN"}
    assert outcomes(stages, tmp_path) == expected


def test_a_run_without_stages_does_not_pass(tmp_path: Path) -> None:
    assert Schedule([], tmp_path, at_most=1).run() is False


def test_the_number_of_concurrent_stages_is_limited(tmp_path: Path) -> None:
    count = (
        "import os, pathlib, time; here = pathlib.Path({!r}); (here / str(os.getpid())).touch(); time.sleep(0.3); "
        "running = len(list(here.iterdir())); (here / str(os.getpid())).unlink(); raise SystemExit(running > 2)"
    )
    (tmp_path / "running").mkdir()
    stages = [stage(f"s{number}", count.format(str(tmp_path / "running"))) for number in range(5)]
    assert set(outcomes(stages, tmp_path).values()) == {"passed"}
