"""The steps of a release, in order: each adds files to the directory, the checksums come last.

The directory is flat, as the page of a release is: the list of checksums has the names that its readers download.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from horovodjob_release.airgapped import write_air_gapped_archive
from horovodjob_release.archives import checksums
from horovodjob_release.changelog import notes
from horovodjob_release.distributions import build_distributions, required_packages, wheel_name
from horovodjob_release.errors import ReleaseError
from horovodjob_release.images import ReleasedImage, release_images
from horovodjob_release.install import package_charts, write_manifests
from horovodjob_release.packages import Package
from horovodjob_release.publication import Publication
from horovodjob_release.sbom import bill_of_materials, distribution_component, image_component
from horovodjob_release.version import project_version

STARTED = time.monotonic()
# GitHub accepts files of less than 2 GiB.
MAXIMUM_BYTES = 2 * 1024**3
LICENCES = """\
# Licences of what {name} contains

The texts are in the image, in `/usr/share/doc/*/copyright` and `*.dist-info`.

| package | version | from | licences |
| --- | --- | --- | --- |
"""
ORIGINS = {"deb": "Debian", "pypi": "PyPI"}


def build_release(root: Path, dist: Path, publication: Publication) -> None:
    """Build everything into `dist`, which is replaced."""
    version = project_version(root)
    notes(root, version)  # a release without notes ends here, not after the images
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    _say("Python distributions")
    for wheel in build_distributions(root, dist):
        if wheel.suffix == ".whl":
            _describe_wheel(wheel, root, dist, version)
    _say("charts and manifests")
    package_charts(root, dist, publication)
    write_manifests(root, dist, publication)
    _say("images")
    images = release_images(root, dist, publication)
    for image in images:
        _describe_image(image, dist, version)
        _say(f"{image.name}@{image.digest}")
    _say("archive for air-gapped clusters")
    write_air_gapped_archive(dist, root, version, [image.name for image in images])
    check_sizes(dist)
    (dist / "SHA256SUMS").write_text(checksums(dist))
    _say(f"done: {dist}")


def check_sizes(dist: Path) -> None:
    """Raise ReleaseError if a file is too large for the page of a release."""
    for path in dist.iterdir():
        if (size := path.stat().st_size) >= MAXIMUM_BYTES:
            raise ReleaseError(f"{path.name} has {size} bytes, and a release has files of less than {MAXIMUM_BYTES}")


def licence_report(name: str, packages: list[Package]) -> str:
    """A page with each package of an image, its version and its licences."""
    rows = [
        f"| {package.name} | {package.version} | {ORIGINS[package.kind]} "
        f"| {', '.join(package.licences) or 'see its copyright file'} |\n"
        for package in packages
    ]
    return LICENCES.format(name=name) + "".join(rows)


def _describe_wheel(wheel: Path, root: Path, dist: Path, version: str) -> None:
    name = wheel_name(wheel)
    bill = bill_of_materials(distribution_component(name, version), required_packages(wheel, root))
    (dist / f"{wheel.name}.cdx.json").write_text(bill)


def _describe_image(image: ReleasedImage, dist: Path, version: str) -> None:
    repository = image.name.rpartition(":")[0]
    bill = bill_of_materials(image_component(repository, version, image.digest), image.packages)
    (dist / f"{image.archive.name}.cdx.json").write_text(bill)
    role = repository.rpartition("/")[2]
    (dist / f"{role}-{version}.licences.md").write_text(licence_report(image.name, image.packages))


def _say(message: str) -> None:
    print(f"release {time.monotonic() - STARTED:6.1f}s  {message}", file=sys.stderr, flush=True)
