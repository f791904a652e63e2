"""How stages run programs: with the project's own Python first on PATH."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stages.settings import CA_BUNDLE, CACHE, CLUSTER, CLUSTER_NAME, ROOT, VENV, StageError

# More failures than this have a common cause, which a second try would not change.
MOST_TESTS_AGAIN = 3
TESTS_FAILED = 1  # the exit code of pytest
RAN_AGAIN = "passed only when run again: "
PYTEST: tuple[str | Path, ...] = (VENV / "bin" / "python", "-m", "pytest")
# Without bytecode every process compiles all its imports: 7 s of CPU time for TensorFlow, 2 s for kopf. Some
# environments do not allow bytecode beside the sources, and .venv may be new in each run, so it is in the cache.
BYTECODE = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(CACHE / "bytecode")}


def call(*command: str | Path, **variables: str) -> None:
    """Run a command with its output visible and more environment variables. Raises StageError if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env=environment() | variables, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        shown = " ".join(word.replace(f"{ROOT}/", "") for word in words[:6])
        message = f"`{shown}{' ...' if len(words) > 6 else ''}` ended with {done.returncode}"
        raise StageError(message, done.returncode)


def output(*command: str | Path) -> str:
    """The standard output of a command; its messages stay visible. Raises StageError if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise StageError(f"`{' '.join(words[:3])} ...` ended with {done.returncode}")
    return done.stdout.strip()


def cluster(*arguments: str) -> None:
    """Run a command of the local cluster."""
    call(sys.executable, CLUSTER, "--name", CLUSTER_NAME, *arguments)


def cluster_runs() -> bool:
    """Whether the local cluster is up and healthy."""
    command = [sys.executable, str(CLUSTER), "--name", CLUSTER_NAME, "status"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def images(*arguments: str) -> None:
    """Run a command of the image builder."""
    call(sys.executable, CLUSTER / "images", *arguments)


def pytest(*arguments: str) -> None:
    """Run pytest with its output visible; no test at all is an error."""
    call(*PYTEST, *arguments, **BYTECODE)


def pytest_twice(arguments: tuple[str, ...], parallel: tuple[str, ...]) -> None:
    """Run pytest, and once more, alone, the tests that failed if they are few.

    A test that passes alone is a defect of the test or of the product, such as a race. It is named at the end of the
    whole run. Raises StageError for it outside CI, where somebody can correct it.
    """
    with tempfile.TemporaryDirectory() as cache:
        command = (*PYTEST, *arguments, "-o", f"cache_dir={cache}")
        try:
            call(*command, *parallel, **BYTECODE)
        except StageError as error:
            failed = failed_tests(Path(cache))
            # With another code, not all tests have run.
            if error.code != TESTS_FAILED or not 0 < len(failed) <= MOST_TESTS_AGAIN:
                raise
            print(f"\nrun again, alone: {', '.join(failed)}", flush=True)
            call(*command, "--last-failed", **BYTECODE)
            print(f"{RAN_AGAIN}{', '.join(failed)}", flush=True)
            if not os.environ.get("CI"):
                raise StageError("a test that passes only when run again fails the stage unless CI is set") from None


def failed_tests(cache: Path) -> list[str]:
    """The tests that failed in the last run of pytest with this cache."""
    file = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(file.read_text())) if file.exists() else []


def environment() -> dict[str, str]:
    """The environment of all commands: the project's Python first on PATH, this machine's certificates."""
    path = os.pathsep.join([str(VENV / "bin"), str(CACHE / "bin"), os.environ.get("PATH", "")])
    certificates = {"SSL_CERT_FILE": str(CA_BUNDLE), "PIP_CERT": str(CA_BUNDLE)} if CA_BUNDLE.exists() else {}
    return {
        **certificates,
        # Two checkouts that write into one cache get errors that are not there.
        "MYPY_CACHE_DIR": str(CACHE / "mypy" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]),
        **os.environ,
        "PATH": path,
        "MYPYPATH": "operator:trainer:release:tests:benchmarks",
        "UV_CACHE_DIR": str(CACHE / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PROJECT_ENVIRONMENT": str(VENV),
        "VIRTUAL_ENV": "",
    }
