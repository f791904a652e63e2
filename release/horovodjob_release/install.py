"""What a cluster is given: the charts, and the manifests in one file, with the names of the registry."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from horovodjob_release.archives import repack
from horovodjob_release.errors import ReleaseError
from localcluster.binaries.cache import Binaries
from localcluster.images.project import REPOSITORY
from localcluster.progress import Progress
from localcluster.settings import cache_directory

CHARTS = ("charts/horovodjob-operator", "charts/horovodjob")
HELM, KUBECTL = "helm4", "kubectl"
# What Chart.yaml has in the place of the registry and of the project.
EXAMPLE_REGISTRY, EXAMPLE_PROJECT = "example.azurecr.io", "OWNER/REPOSITORY"


@dataclass(frozen=True, slots=True)
class Publication:
    """Where a release is published; charts and manifests name it."""

    registry: str = ""
    """Such as ghcr.io/team; empty: the images have names without a registry."""
    project: str = ""
    """OWNER/REPOSITORY on GitHub; empty: the charts keep these words."""


def package_charts(root: Path, target: Path, publication: Publication) -> list[Path]:
    """Package the charts; same sources, same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        for chart in CHARTS:
            copy = Path(shutil.copytree(root / chart, Path(folder) / chart))
            _set_publication(copy, publication)
            _output(HELM, "package", str(copy), "--destination", str(target))
    packages = sorted(target.glob("*.tgz"))
    for package in packages:
        repack(package)
    return packages


def _set_publication(chart: Path, publication: Publication) -> None:
    metadata, values = chart / "Chart.yaml", chart / "values.yaml"
    text = metadata.read_text().replace(EXAMPLE_PROJECT, publication.project or EXAMPLE_PROJECT)
    if publication.registry:
        text = text.replace(EXAMPLE_REGISTRY, publication.registry)
        values.write_text(values.read_text().replace('  registry: ""\n', f"  registry: {publication.registry}\n"))
    metadata.write_text(text)


def manifests(root: Path, publication: Publication) -> str:
    """All objects of manifests/base."""
    built = _output(KUBECTL, "kustomize", str(root / "manifests" / "base"))
    if not publication.registry:
        return built
    return built.replace(f" image: {REPOSITORY}/", f" image: {publication.registry}/{REPOSITORY}/")


def _output(binary: str, *arguments: str) -> str:
    """Standard output of one of the binaries that are built from Go modules."""
    binaries = Binaries(cache_directory())
    binaries.ensure(Progress(), (binary,))
    done = subprocess.run([str(binaries.path(binary)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{binary} {arguments[0]}: {done.stderr.strip()}")
    return done.stdout
