"""The steps of a release, in order: each adds files to the directory, the checksums come last."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from horovodjob_release.airgapped import write_air_gapped_archive
from horovodjob_release.archives import checksums
from horovodjob_release.changelog import notes
from horovodjob_release.distributions import build_distributions, required_packages, wheel_name
from horovodjob_release.images import ReleasedImage, release_images
from horovodjob_release.install import Publication, manifests, package_charts
from horovodjob_release.report import licence_report
from horovodjob_release.sbom import bill_of_materials, distribution_component, image_component
from horovodjob_release.version import project_version

STARTED = time.monotonic()
FOLDERS = ("charts", "images", "licences", "manifests", "python", "sbom")


def build_release(root: Path, dist: Path, publication: Publication) -> None:
    """Build everything into `dist`, which is replaced."""
    version = project_version(root)
    notes(root, version)  # a release without notes ends here, not after the images
    shutil.rmtree(dist, ignore_errors=True)
    for folder in FOLDERS:
        (dist / folder).mkdir(parents=True)
    _say("Python distributions")
    for wheel in build_distributions(root, dist / "python"):
        if wheel.suffix == ".whl":
            _describe_wheel(wheel, root, dist, version)
    _say("charts and manifests")
    package_charts(root, dist / "charts", publication)
    (dist / "manifests" / f"horovodjob-{version}.yaml").write_text(manifests(root, publication))
    shutil.copy(root / "manifests/base/crd.yaml", dist / "manifests" / f"horovodjob-crd-{version}.yaml")
    _say("images")
    images = release_images(version, dist / "images", publication.registry)
    for image in images:
        _describe_image(image, dist, version)
        _say(f"{image.name}@{image.digest}")
    _say("archive for air-gapped clusters")
    write_air_gapped_archive(dist, root, version, [image.name for image in images])
    (dist / "SHA256SUMS").write_text(checksums(dist))
    _say(f"done: {dist}")


def _describe_wheel(wheel: Path, root: Path, dist: Path, version: str) -> None:
    name = wheel_name(wheel)
    bill = bill_of_materials(distribution_component(name, version), required_packages(wheel, root))
    (dist / "sbom" / f"{wheel.name}.cdx.json").write_text(bill)


def _describe_image(image: ReleasedImage, dist: Path, version: str) -> None:
    repository = image.name.rpartition(":")[0]
    bill = bill_of_materials(image_component(repository, version, image.digest), image.packages)
    (dist / "sbom" / f"{image.archive.name}.cdx.json").write_text(bill)
    role = repository.rpartition("/")[2]
    (dist / "licences" / f"{role}-{version}.md").write_text(licence_report(image.name, image.packages))


def _say(message: str) -> None:
    print(f"release {time.monotonic() - STARTED:6.1f}s  {message}", file=sys.stderr, flush=True)
