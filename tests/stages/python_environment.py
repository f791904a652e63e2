"""The Python environment .venv, in two steps: the packages of lint and unit tests, then TensorFlow and Horovod."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stages.commands import call, output
from stages.debian import HOROVOD_PACKAGES, install_packages
from stages.settings import CACHE, ROOT, VENV, StageError

# TensorFlow 2.21 has wheels for these.
PYTHONS = ("python3.11", "python3.12", "python3.13")


def prepare_environment() -> None:
    """Create .venv for everything except the trainer; additional packages stay."""
    with _locked(CACHE / "tools" / "environment.lock"):
        _sync("--inexact")


def prepare_trainer_environment() -> None:
    """Create .venv exactly as in uv.lock, with Horovod, which is compiled if no build of it is in the cache."""
    install_compilers(find_python())
    with _locked(CACHE / "tools" / "environment.lock"):
        _sync("--group", "trainer", "--group", "onnx", "--group", "heif", "--group", "mpi4py")
        install_horovod(VENV / "bin" / "python")


def install_compilers(python: str) -> None:
    """Install the packages that compile and run Horovod for a Python."""
    headers = (f"{Path(python).name}-dev",) if python.startswith("/usr/bin/") else ()
    install_packages(*HOROVOD_PACKAGES, *headers)


def install_horovod(python: Path, *options: str) -> None:
    """Install Horovod into the environment of a Python, compiled for its TensorFlow."""
    build = (sys.executable, ROOT / "images" / "horovod" / "build.py")
    wheel = output(*build, "--python", python, "--wheels", CACHE / "horovod", *options)
    call(find_uv(find_python()), "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)


def _sync(*arguments: str) -> None:
    """Run `uv sync`, without Horovod, which has no wheel in the index."""
    python = find_python()
    common = ("--frozen", "--no-install-package", "horovod", "--extra", "operator", "--extra", "dashboard")
    call(find_uv(python), "sync", "--python", python, *common, *arguments)


def find_python(names: Sequence[str] = PYTHONS) -> str:
    """The path of a Python that TensorFlow has wheels for: the first of some names."""
    for name in names:
        path = shutil.which(name)
        if not path:
            continue
        command = [path, "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    raise StageError(f"install {' or '.join(names)}: TensorFlow has no wheels for other versions")


def find_uv(python: str) -> Path:
    """The path of the uv that the Dockerfile pins by its hash; it is installed into the cache once."""
    requirement = uv_requirement((ROOT / "Dockerfile").read_text())
    folder = CACHE / "tools" / f"uv-{hashlib.sha256(requirement.encode()).hexdigest()[:12]}"
    with _locked(CACHE / "tools" / "uv.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            if not _has_ensurepip(python):
                install_packages(f"{Path(python).name}-venv")
            call(python, "-m", "venv", folder)
            (folder / "uv.txt").write_text(requirement)
            options = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")
            call(folder / "bin/pip", "install", *options, "-r", folder / "uv.txt")
            (folder / "done").touch()
    return folder / "bin" / "uv"


def uv_requirement(dockerfile: str) -> str:
    """The requirement of pip for uv in the text of the Dockerfile. Raises StageError if it has none with a hash."""
    found = re.search(r'^ARG UV_REQUIREMENT="([^"]+)"$', dockerfile, re.MULTILINE)
    words = found[1].replace("\\\n", " ").split() if found else []
    if not re.fullmatch(r"uv==\S+( --hash=sha256:[0-9a-f]{64})+", " ".join(words)):
        raise StageError("set ARG UV_REQUIREMENT in the Dockerfile to a version of uv with hashes: uv==... --hash=...")
    return " ".join(words)


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
