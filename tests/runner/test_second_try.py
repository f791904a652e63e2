"""Tests that fail are run once more: in CI a run that then passes says which, elsewhere it fails."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from stages.commands import MOST_TESTS_AGAIN, RAN_AGAIN, pytest_twice
from stages.settings import ROOT, StageError

ONCE = """
import os
from pathlib import Path
def test_once():
    seen = Path(__file__).with_name("seen")
    try: assert seen.exists()
    finally: seen.touch()
def test_other(): pass
"""
CRASHES_ONCE = ONCE.replace(
    "finally: seen.touch()", "finally:\n        if not seen.exists(): seen.touch(); os._exit(1)"
)
FAILS = "def test_fails(): assert 0\n"


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pytest that starts at once."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_test_that_passes_alone_is_named_and_fails_the_stage_outside_ci(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    with contextlib.nullcontext() if ci else pytest.raises(StageError, match="only when run again"):
        run(tmp_path, ONCE, ("-p", "xdist", "-n", "1") if ci else ())
    lines = capfd.readouterr().out.splitlines()
    assert f"{RAN_AGAIN}test_it.py::test_once" in lines
    assert any(line.startswith("1 passed") or " 1 passed" in line for line in lines), "only the failed test runs again"


def test_a_test_that_fails_again_fails_the_stage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StageError):
        run(tmp_path, FAILS)
    assert "run again, alone: test_it.py::test_fails" in capfd.readouterr().out


@pytest.mark.parametrize(
    "program",
    [
        "".join(f"def test_{number}(): assert 0\n" for number in range(MOST_TESTS_AGAIN + 1)),
        "import no_such_module\n",
    ],
    ids=["many failures", "no import"],
)
def test_what_a_second_try_would_not_change_fails_the_stage_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], program: str
) -> None:
    with pytest.raises(StageError):
        run(tmp_path, program)
    assert RAN_AGAIN not in capfd.readouterr().out


def test_a_process_of_tests_that_ends_fails_the_stage_because_other_tests_did_not_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\nfrom runner.failures import Failures\n"
        "def pytest_configure(config): config.pluginmanager.register(Failures(config))\n"
    )
    with pytest.raises(StageError):
        run(tmp_path, CRASHES_ONCE, ("-p", "xdist", "-n", "1", "--max-worker-restart", "0"))
    output = capfd.readouterr().out
    assert "run again" not in output
    assert "test_it.py::test_once failed: worker 'gw0' crashed" in output


def run(folder: Path, program: str, parallel: tuple[str, ...] = ()) -> None:
    """Runs a file of tests twice, if need be."""
    (folder / "test_it.py").write_text(program)
    pytest_twice((str(folder), f"--rootdir={folder}"), parallel)
