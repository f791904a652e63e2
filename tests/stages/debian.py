"""Debian packages that the tests need. Missing ones are installed in one call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from stages.settings import CACHE, CLUSTER, LOGS, StageError

# Horovod has no wheels: these packages are needed to compile and run it.
HOROVOD_PACKAGES = ("g++", "make", "cmake", "patch", "openmpi-bin", "libopenmpi-dev")
# Image builder.
IMAGE_PACKAGES = ("buildah", "debootstrap", "debian-archive-keyring")
# A mount that a test removes.
E2E_PACKAGES = ("fuse-overlayfs",)
# Chromium and its WebDriver, for the pages of the dashboard.
BROWSER_PACKAGES = ("chromium-driver",)
# For tests of metrics, alerts and dashboards. If installed, the package would start a service.
PROMETHEUS = "prometheus"
PROMETHEUS_PROGRAMS = ("prometheus", "promtool")


def install_all_packages() -> None:
    """Install what any stage needs: one call of apt-get instead of one for each stage."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    headers = (f"{python}-dev", f"{python}-venv") if sys.executable.startswith("/usr/bin/") else ()
    install_packages(
        *HOROVOD_PACKAGES, *IMAGE_PACKAGES, *E2E_PACKAGES, *BROWSER_PACKAGES, *_cluster_packages(), *headers
    )
    extract_programs(PROMETHEUS, *PROMETHEUS_PROGRAMS)


def install_packages(*wanted: str) -> None:
    """Install the missing packages. Raises StageError if that requires another user."""
    missing = [name for name in wanted if not _installed(name)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise StageError(f"install these packages first: {' '.join(missing)}")
    print(f"installing {' '.join(missing)}", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    install = ("install", "-y", "--no-install-recommends", *missing)
    # The package lists are fetched only if the present ones are not sufficient.
    if not _apt_get(*install):
        _apt_get("update")
        if not _apt_get(*install):
            raise StageError(f"apt-get could not install {' '.join(missing)}; see {LOGS / 'apt.log'}")


def extract_programs(package: str, *programs: str) -> None:
    """Put programs of a package into the cache's folder `bin`, without the package. Raises StageError."""
    folder = CACHE / "bin"
    if all(shutil.which(program) or (folder / program).exists() for program in programs):
        return
    if not shutil.which("apt-get"):
        raise StageError(f"install these programs first: {' '.join(programs)}")
    print(f"extracting {' '.join(programs)}", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        if not _apt_get("download", package, folder=scratch):
            _apt_get("update")
            if not _apt_get("download", package, folder=scratch):
                raise StageError(f"apt-get could not download {package}; see {LOGS / 'apt.log'}")
        archive = next(Path(scratch).glob("*.deb"))
        subprocess.run(["dpkg-deb", "--extract", archive, scratch], check=True)
        for program in programs:
            Path(scratch, "usr", "bin", program).rename(folder / program)


def _apt_get(*arguments: str, folder: str | None = None) -> bool:
    """Whether the command succeeded; its output is in a log."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600", *arguments]
    with (LOGS / "apt.log").open("a") as log:
        return subprocess.run(command, env=env, cwd=folder, stdout=log, stderr=log, check=False).returncode == 0


def _installed(package: str) -> bool:
    """Whether a Debian package is installed; True on other systems."""
    if not shutil.which("dpkg-query"):
        return True
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout == "installed"


def _cluster_packages() -> tuple[str, ...]:
    return tuple(tomllib.loads((CLUSTER / "versions.toml").read_text())["debian"]["packages"])
