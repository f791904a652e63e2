"""What a cluster is given: the charts, and the manifests in one file."""

from __future__ import annotations

import subprocess
from pathlib import Path

from horovodjob_release.archives import repack
from horovodjob_release.errors import ReleaseError
from localcluster.binaries import Binaries
from localcluster.progress import Progress
from localcluster.settings import cache_directory

CHARTS = ("charts/horovodjob-operator", "charts/horovodjob")
HELM, KUBECTL = "helm4", "kubectl"


def package_charts(root: Path, target: Path) -> list[Path]:
    """Package the charts; same sources, same bytes."""
    for chart in CHARTS:
        _output(HELM, "package", str(root / chart), "--destination", str(target))
    packages = sorted(target.glob("*.tgz"))
    for package in packages:
        repack(package)
    return packages


def manifests(root: Path) -> str:
    """All objects of manifests/base."""
    return _output(KUBECTL, "kustomize", str(root / "manifests" / "base"))


def _output(binary: str, *arguments: str) -> str:
    """Standard output of one of the binaries that are built from Go modules."""
    binaries = Binaries(cache_directory())
    binaries.ensure(Progress(), (binary,))
    done = subprocess.run([str(binaries.path(binary)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{binary} {arguments[0]}: {done.stderr.strip()}")
    return done.stdout
