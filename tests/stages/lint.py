"""Style, types, words, sizes of files, pages, architecture contracts and shell scripts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial

from stages.commands import call
from stages.settings import ROOT, VENV, StageError
from stages.site import build_site

CODE = ("operator", "trainer", "release", "localcluster", "tests", "demo", "benchmarks", "images", "manifests")


def lint() -> None:
    """Run all checks, even if one fails. Raises StageError with the names of the failed ones."""
    failed = []
    for name, check in _checks().items():
        print(f"== lint: {name}", flush=True)
        try:
            check()
        except StageError:
            failed.append(name)
    if failed:
        raise StageError(f"{', '.join(failed)} found something")


def _checks() -> dict[str, Callable[[], None]]:
    scripts = [path for path in _tracked_files() if path.endswith(".sh") or path == ".ci/run"]
    return {
        "ruff check": _program("ruff", "check", "."),
        "ruff format": _program("ruff", "format", "--check", "."),
        "mypy": _program("mypy", *CODE),
        "words and sizes": _program("python", "tests/stages/prose.py"),
        "pages": _program("python", "tests/stages/pages.py"),
        "site": build_site,
        "import contracts": _program("lint-imports"),
        "shellcheck": _program("shellcheck", "-x", *scripts),
    }


def _program(name: str, *arguments: str) -> Callable[[], None]:
    return partial(call, VENV / "bin" / name, *arguments, PYTHONPATH="tests")


def _tracked_files() -> list[str]:
    """The files of the project; without git, the shell scripts."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.sh") if ".venv" not in path.parts] + [".ci/run"]
