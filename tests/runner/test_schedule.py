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


def test_a_run_passes_only_if_all_its_stages_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [stage("a"), stage("b", needs=("a",))]
    assert outcomes(good, tmp_path) == {"a": "passed", "b": "passed"}
    bad = [
        stage("bad", "print('its own words', flush=True); raise SystemExit(3)"),
        stage("killed", "import os; os.kill(os.getpid(), 9)"),
        Stage("absent", ("/no/such/program",)),
        stage("next", needs=("bad",)),
        stage("last", needs=("next",)),
        stage("clean", after=("bad",)),
        stage("alone", needs=("nobody",)),
    ]
    failed = dict.fromkeys(("bad", "killed", "absent"), "FAILED") | dict.fromkeys(("next", "last", "alone"), "NOT RUN")
    assert outcomes([*good, *bad], tmp_path) == failed | dict.fromkeys(("a", "b", "clean"), "passed")
    assert "its own words" in capsys.readouterr().out
    assert Schedule([], tmp_path, at_most=1).run() is False


def test_the_number_of_concurrent_stages_is_limited(tmp_path: Path) -> None:
    count = (
        "import os, pathlib, time; here = pathlib.Path({!r}); (here / str(os.getpid())).touch(); time.sleep(0.3); "
        "running = len(list(here.iterdir())); (here / str(os.getpid())).unlink(); raise SystemExit(running > 2)"
    )
    (tmp_path / "running").mkdir()
    stages = [stage(f"s{number}", count.format(str(tmp_path / "running"))) for number in range(5)]
    assert set(outcomes(stages, tmp_path).values()) == {"passed"}
