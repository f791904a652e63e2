"""The Python environment .venv, in two steps: the packages of lint and unit tests, then TensorFlow and Horovod."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from stages.commands import call
from stages.debian import HOROVOD_PACKAGES, install_packages
from stages.settings import CACHE, ROOT, VENV, StageError

# TensorFlow 2.18 has wheels for these.
PYTHONS = ("python3.11", "python3.12")


def prepare_environment() -> None:
    """Create .venv for everything except the trainer; additional packages stay."""
    _sync("--inexact")


def prepare_trainer_environment() -> None:
    """Create .venv exactly as in uv.lock; Horovod is compiled if no build of it is in the cache."""
    if not _has("horovod"):
        python = find_python()
        headers = (f"{Path(python).name}-dev",) if python.startswith("/usr/bin/") else ()
        install_packages(*HOROVOD_PACKAGES, *headers)
    with _locked(CACHE / "uv" / "horovod.lock"):  # the trainer image also compiles Horovod under this lock
        _sync("--group", "trainer", "--group", "onnx", "--group", "mpi4py")


def _sync(*arguments: str) -> None:
    """Run `uv sync` under a lock."""
    python = find_python()
    uv = find_uv(python)
    with _locked(CACHE / "tools" / "environment.lock"):
        call(uv, "sync", "--frozen", "--python", python, "--extra", "operator", "--extra", "dashboard", *arguments)


def find_python() -> str:
    """The path of a Python that TensorFlow has wheels for."""
    for name in PYTHONS:
        path = shutil.which(name)
        if not path:
            continue
        command = [path, "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    raise StageError(f"install {' or '.join(PYTHONS)}: TensorFlow 2.18 has no wheels for other versions")


def find_uv(python: str) -> Path:
    """The path of uv in the version that the Dockerfile pins; it is installed into the cache once."""
    found = re.search(r"^ARG UV_VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    if not found:
        raise StageError("add the line `ARG UV_VERSION=...` to the Dockerfile: it pins the version of uv")
    folder = CACHE / "tools" / f"uv-{found[1]}"
    with _locked(CACHE / "tools" / "uv.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if not _has_ensurepip(python):
                install_packages(f"{Path(python).name}-venv")
            call(python, "-m", "venv", folder)
            call(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", f"uv=={found[1]}")
            (folder / "done").touch()
    return folder / "bin" / "uv"


def _has_ensurepip(python: str) -> bool:
    """Whether Python can create virtual environments: Debian needs an additional package."""
    return subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _has(package: str) -> bool:
    return any(VENV.glob(f"lib/python3.*/site-packages/{package}/__init__.py"))
