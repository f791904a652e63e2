"""Style, types, words, sizes of files, pages, architecture contracts and shell scripts."""

from __future__ import annotations

import subprocess

from stages.commands import call
from stages.settings import ROOT, VENV, StageError

CODE = ("operator", "trainer", "release", "localcluster", "tests", "demo", "benchmarks", "images", "manifests")


def lint() -> None:
    """Run all checks, even if one fails. Raises StageError with the names of the failed ones."""
    failed = []
    for name, (program, *arguments) in _checks().items():
        print(f"== lint: {name}", flush=True)
        try:
            call(VENV / "bin" / program, *arguments, PYTHONPATH="tests")
        except StageError:
            failed.append(name)
    if failed:
        raise StageError(f"{', '.join(failed)} found something")


def _checks() -> dict[str, list[str]]:
    scripts = [path for path in _tracked_files() if path.endswith(".sh") or path == ".ci/run"]
    return {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy", *CODE],
        "words and sizes": ["python", "tests/stages/prose.py"],
        "pages": ["python", "tests/stages/pages.py"],
        "import contracts": ["lint-imports"],
        "shellcheck": ["shellcheck", "-x", *scripts],
    }


def _tracked_files() -> list[str]:
    """The files of the project; without git, the shell scripts."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.sh") if ".venv" not in path.parts] + [".ci/run"]
