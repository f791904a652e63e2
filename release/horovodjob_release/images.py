"""The images of a release: built, checked and described, and built once more for comparison."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from horovodjob_release.errors import ReleaseError
from horovodjob_release.licences import is_distributable, is_in_main
from horovodjob_release.oci import write_oci_archive
from horovodjob_release.packages import Package, image_packages
from horovodjob_release.publication import Publication, image_labels
from horovodjob_release.version import project_version
from localcluster.images.project import REPOSITORY, build

# The image for GPUs contains NVIDIA's libraries: users build it, and agree to NVIDIA's terms, themselves.
ROLES = ("operator", "dashboard", "hvj", "trainer")
# The registry of names without one.
DEFAULT_REGISTRY = "docker.io"


@dataclass(frozen=True, slots=True)
class ReleasedImage:
    """One image of the release."""

    name: str
    digest: str
    archive: Path
    packages: list[Package]


def image_name(registry: str, role: str, version: str) -> str:
    """The name of an image, as in the charts and manifests of a release for the registry."""
    return f"{registry or DEFAULT_REGISTRY}/{REPOSITORY}/{role}:{version}"


def release_images(root: Path, target: Path, publication: Publication) -> list[ReleasedImage]:
    """Write each image as an OCI archive. Raises ReleaseError where an image may not be distributed."""
    version, labels = project_version(root), image_labels(root, publication)
    return [
        _released(role, Path(str(image.archive)), image_name(publication.registry, role, version), target, labels)
        for role, image in zip(ROLES, build(list(ROLES)), strict=True)
    ]


def image_digest(root: Path, role: str, publication: Publication, cache: Path | None = None) -> str:
    """The digest of an image that is built without anything of earlier builds; that of the release must be the same."""
    with contextlib.ExitStack() as stack:
        folder = cache or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="horovodjob-")))
        done = subprocess.run(
            [sys.executable, str(root / "localcluster/images"), "build", role],
            env={**os.environ, "HOROVODJOB_CACHE": str(folder.absolute())},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ReleaseError(f"the image {role} cannot be built; the reason is above")
        archive = Path(json.loads(done.stdout)[role]["archive"])
        name = image_name("", role, project_version(root))  # no part of the digest
        return write_oci_archive(archive, name, archive.with_suffix(".oci"), image_labels(root, publication))


def obstacles(packages: list[Package]) -> list[str]:
    """Why an image with these packages may not be distributed, one sentence for each package."""
    found = []
    for package in packages:
        if package.kind == "deb":
            if not is_in_main(package.section):
                found.append(f"{package.name} is in Debian's {package.section}, and only main is free to distribute")
            if not package.has_copyright_file:
                found.append(f"{package.name} has no copyright file in the image, which its licence requires")
        elif not all(is_distributable(licence) for licence in package.licences):
            found.append(f"{package.name} states {', '.join(package.licences)}, which licences.py does not allow")
    return found


def _released(role: str, source: Path, name: str, target: Path, labels: Mapping[str, str]) -> ReleasedImage:
    packages = image_packages(source)
    if found := obstacles(packages):
        raise ReleaseError(f"the image {role} may not be distributed: {'; '.join(found)}")
    archive = target / f"{role}-{name.rpartition(':')[2]}.oci.tar"
    return ReleasedImage(name, write_oci_archive(source, name, archive, labels), archive, packages)
