"""A test that does not run never counts as passed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages.catalog import FUNCTIONS
from stages.settings import ROOT, StageError

SKIPS = {
    "a_mark": "import pytest\n@pytest.mark.skip(reason='not today')\ndef test_one(): pass\n",
    "a_call": "import pytest\ndef test_one(): pytest.skip('not today')\n",
    "a_fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip('not today')\ndef test_one(f): pass\n",
    "a_whole_file": "import pytest\npytest.skip('not today', allow_module_level=True)\n",
    "no_parameters": "import pytest\n@pytest.mark.parametrize('today', [])\ndef test_one(today): pass\n",
    "an_expected_failure": "import pytest\n@pytest.mark.xfail(reason='not today')\ndef test_one(): assert 0\n",
}
PASSES = {"passes": "def test_one(): pass\n"}


def run_pytest(folder: Path, programs: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest on a file for each program, with the rules of all tests."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'}\n")
    for name, program in programs.items():
        (folder / f"test_{name}.py").write_text(program)
    command = [sys.executable, "-m", "pytest", str(folder), f"--rootdir={folder}", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_skipped_test_is_a_failure_that_names_its_reason(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, SKIPS | PASSES, "--continue-on-collection-errors", "-n", "1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    for name in SKIPS:
        lines = [line for line in done.stdout.splitlines() if f"test_{name}.py" in line and "did not run" in line]
        assert any("today" in line for line in lines), done.stdout
    assert re.search(r" 1 passed\b.* in [\d.]+s", done.stdout), done.stdout


def test_a_run_without_a_test_fails(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, {}).returncode != 0


@pytest.mark.parametrize("name", ["unit", "e2e-serial"])
def test_a_stage_without_its_folder_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("stages.catalog.ROOT", tmp_path)
    with pytest.raises(StageError, match="is missing"):
        FUNCTIONS[name]()
