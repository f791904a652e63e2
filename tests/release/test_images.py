"""Images of a release: reproducible archives, bills of materials, and licences that do not allow distribution."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from horovodjob_release.errors import ReleaseError
from horovodjob_release.images import obstacles
from horovodjob_release.oci import write_oci_archive
from horovodjob_release.packages import Package, image_packages
from horovodjob_release.publication import Publication, image_labels
from horovodjob_release.sbom import bill_of_materials, components, image_component
from horovodjob_release.steps import licence_report
from horovodjob_release.version import project_version
from release.image import read
from support.api_client import ROOT

NAME = "docker.io/horovodjob/operator:1.2.3"
LABELS = {"org.opencontainers.image.version": "1.2.3"}


def test_an_archive_is_reproducible_and_has_its_image_under_its_name_and_each_blob_under_its_digest(
    image: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "1.oci.tar", tmp_path / "2.oci.tar"
    digest = write_oci_archive(image, NAME, first, LABELS)
    assert write_oci_archive(image, NAME, second, LABELS) == digest
    assert first.read_bytes() == second.read_bytes()
    files = read(first)
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert (entry["digest"], entry["annotations"]["io.containerd.image.name"]) == (digest, NAME)
    blobs = {name.rpartition("/")[2]: content for name, content in files.items() if name.startswith("blobs/")}
    assert {hashlib.sha256(content).hexdigest() for content in blobs.values()} == set(blobs)
    manifest = json.loads(blobs[digest.removeprefix("sha256:")])
    assert len(manifest["layers"]) == 3
    configuration = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert configuration["config"]["Labels"] == {"org.opencontainers.image.title": "an image", **LABELS}
    assert manifest["annotations"] == LABELS


def test_the_labels_of_an_image_name_its_source_version_and_revision() -> None:
    labels = image_labels(ROOT, Publication(project="team/training"))
    prefix = "org.opencontainers.image"
    assert labels[f"{prefix}.source"] == "https://github.com/team/training"
    assert labels[f"{prefix}.version"] == project_version(ROOT)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert labels[f"{prefix}.revision"].removesuffix("-dirty") == head.strip()
    assert f"{prefix}.source" not in image_labels(ROOT, Publication())


def test_a_damaged_layer_is_rejected(image: Path, tmp_path: Path) -> None:
    content = image.read_bytes()
    assert content.count(b"Name: kept") == 1
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(content.replace(b"Name: kept", b"Name: keep"))
    with pytest.raises(ReleaseError, match="damaged"):
        write_oci_archive(damaged, NAME, tmp_path / "oci.tar", LABELS)


def test_the_packages_are_those_of_the_last_layer_and_have_a_row_each_in_the_list_of_licences(image: Path) -> None:
    found = image_packages(image)
    assert [(package.kind, package.name, package.version, package.licences) for package in found] == [
        ("deb", "base-files", "12.4", ("GPL-2+",)),
        ("deb", "linked", "1:3.0.11-1~deb12u1+b1", ("GPL-2+",)),
        ("pypi", "kept", "1.0", ("MIT",)),
    ]
    assert obstacles(found) == []
    page = licence_report(NAME, found)
    assert "| base-files | 12.4 | Debian | GPL-2+ |" in page
    assert "| kept | 1.0 | PyPI | MIT |" in page


def test_the_bill_of_materials_is_valid_and_the_same_each_time(image: Path) -> None:
    subject = image_component("docker.io/horovodjob/operator", "1.2.3", "sha256:0")
    bill = bill_of_materials(subject, image_packages(image))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    assert bill_of_materials(subject, image_packages(image)) == bill


def test_a_scanner_finds_the_advisory_of_an_old_debian_package(image: Path) -> None:
    """DSA-5532-1 names the source package openssl of Debian 12, fixed in 3.0.11-1~deb12u2.

    Of a bill, Grype reads the qualifiers (grype/pkg/package.go), and Trivy the operating system and properties of its
    own (pkg/sbom/io/decode.go).
    """
    found = components(bill_of_materials(image_component("x/operator", "1.2.3", "sha256:0"), image_packages(image)))
    (system,) = [(one["name"], one["version"]) for one in found if one["type"] == "operating-system"]
    (linked,) = [one for one in found if one["name"] == "linked"]
    qualifiers = PackageURL.from_string(linked["purl"]).qualifiers
    assert (system, qualifiers["distro"], qualifiers["arch"]) == (("debian", "12"), "debian-12", "amd64")
    source, _, version = qualifiers["upstream"].partition("@")
    properties = {each["name"].rpartition(":Src")[2]: each["value"] for each in linked["properties"]}
    assert properties == {"Name": "openssl", "Epoch": "1", "Version": "3.0.11", "Release": "1~deb12u1"}
    assert (source, version) == ("openssl", "1:3.0.11-1~deb12u1")
    for fixed, vulnerable in (("1:3.0.11-1~deb12u2", 0), ("1:3.0.11-1~deb12u1", 1)):
        assert (
            subprocess.run(["dpkg", "--compare-versions", version, "lt", fixed], check=False).returncode == vulnerable
        )


@pytest.mark.parametrize(
    ("package", "reason"),
    [
        (Package("deb", "a", "1", (), "non-free/libs"), "a is in Debian's non-free/libs"),
        (Package("deb", "a", "1", (), "libs", has_copyright_file=False), "a has no copyright file in the image"),
        (Package("pypi", "a", "1", ("LicenseRef-NVIDIA",)), "a states LicenseRef-NVIDIA"),
        (Package("pypi", "a", "1", ("NOASSERTION",)), "a states NOASSERTION"),
        (Package("pypi", "a", "1", ("MIT OR AGPL-3.0-only",)), ""),
    ],
)
def test_a_package_that_may_not_be_distributed_is_reported(package: Package, reason: str) -> None:
    found = obstacles([package])
    assert [sentence.startswith(reason) for sentence in found] == ([True] if reason else [])
