"""What a cluster is given: charts and manifests, with the names of the registry."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from horovodjob_release.archives import repack, write_tar_gz
from horovodjob_release.errors import ReleaseError
from horovodjob_release.publication import Publication
from horovodjob_release.version import project_version
from localcluster.binaries.cache import Binaries
from localcluster.images.project import REPOSITORY
from localcluster.progress import Progress
from localcluster.settings import cache_directory

CHARTS = ("charts/horovodjob-operator", "charts/horovodjob")
HELM, KUBECTL = "helm4", "kubectl"
KUSTOMIZED = re.compile(rf"^  - name: ({REPOSITORY}/\w+)$", re.MULTILINE)
# Generators of manifests, and data of tests.
NOT_RELEASED = shutil.ignore_patterns("generate.py", "*.template.yaml", "*_test.yaml", "__pycache__", "testdata")
# What Chart.yaml has in the place of the registry and of the project.
EXAMPLE_REGISTRY, EXAMPLE_PROJECT = "example.azurecr.io", "OWNER/REPOSITORY"


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


def write_manifests(root: Path, target: Path, publication: Publication) -> None:
    """Write all manifests as an archive for `kubectl apply -k`, and those of the operator and of the CRD as files."""
    version = project_version(root)
    name = f"horovodjob-manifests-{version}"
    with tempfile.TemporaryDirectory() as folder:
        tree = shutil.copytree(root / "manifests", Path(folder) / name, ignore=NOT_RELEASED)
        files = {str(path.relative_to(folder)): path for path in tree.rglob("*") if path.is_file()}
        for path in files.values():
            path.write_text(_published(path.read_text(), publication.registry))
        modes = {name: path.stat().st_mode & 0o777 for name, path in files.items()}
        write_tar_gz(target / f"{name}.tar.gz", files, modes)
        (target / f"horovodjob-{version}.yaml").write_text(_output(KUBECTL, "kustomize", str(tree / "base")))
        shutil.copyfile(tree / "base" / "crd.yaml", target / f"horovodjob-crd-{version}.yaml")


def _published(manifest: str, registry: str) -> str:
    """A manifest with the images of the registry, also in the place of a reader's registry in the examples."""
    prefix = f"{registry}/" if registry else ""
    text = manifest.replace(f"{EXAMPLE_REGISTRY}/{REPOSITORY}/", f"{prefix}{REPOSITORY}/")
    if not registry:
        return text
    return KUSTOMIZED.sub(rf"\g<0>\n    newName: {prefix}\1", text.replace(EXAMPLE_REGISTRY, registry))


def _output(binary: str, *arguments: str) -> str:
    """Standard output of one of the binaries that are built from Go modules."""
    binaries = Binaries(cache_directory())
    binaries.ensure(Progress(), (binary,))
    done = subprocess.run([str(binaries.path(binary)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{binary} {arguments[0]}: {done.stderr.strip()}")
    return done.stdout
