"""The previous release, from the repository's history: its manifests and its operator."""

import subprocess
from pathlib import Path

from support.api_client import ROOT

# The preview of 22 November 2026, by its commit, as it has no tag: 0.1.0, the first release, can be upgraded from it.
COMMIT = "f1ec69099396c358256af1ea4f90158bdf9d5e00"


def shipped_file(path: str) -> str:
    """A file of the previous release, by its path in the repository."""
    return _git("show", f"{COMMIT}:{path}").decode()


def extract_operator(directory: Path) -> Path:
    """Extracts the operator and the command line of the previous release, and returns their import path."""
    archive = _git("archive", COMMIT, "operator")
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive, check=True)
    return directory / "operator"


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    assert done.returncode == 0, (
        f"cannot read commit {COMMIT[:7]}, the previous release that upgrades are tested from: in a shallow clone run "
        f"`git fetch --unshallow` ({done.stderr.decode().strip()})"
    )
    return done.stdout
