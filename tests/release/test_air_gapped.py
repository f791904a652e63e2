"""The archive for clusters that reach no registry."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from api.client import ROOT
from horovodjob_release.airgapped import write_air_gapped_archive
from horovodjob_release.archives import checksums
from horovodjob_release.install import manifests, package_charts
from horovodjob_release.oci import write_oci_archive
from horovodjob_release.version import project_version
from release.image import read

VERSION = project_version(ROOT)
NAMES = [f"docker.io/horovodjob/{role}:{VERSION}" for role in ("operator", "trainer")]


@pytest.fixture(scope="module")
def dist(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release has, with small images."""
    made = tmp_path_factory.mktemp("dist")
    for folder in ("charts", "images", "licences", "manifests", "sbom"):
        (made / folder).mkdir()
    for name in NAMES:
        write_oci_archive(image, name, made / "images" / f"{name.split('/')[-1].replace(':', '-')}.oci.tar")
    package_charts(ROOT, made / "charts")
    (made / "manifests" / f"horovodjob-{VERSION}.yaml").write_text(manifests(ROOT))
    return made


def test_the_archive_is_complete_and_its_checksums_are_valid(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(write_air_gapped_archive(dist, ROOT, VERSION, NAMES)) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "INSTALL",
        "LICENSE",
        "SHA256SUMS",
        f"charts/horovodjob-{VERSION}.tgz",
        f"charts/horovodjob-operator-{VERSION}.tgz",
        "docs/air-gapped.md",
        f"images/operator-{VERSION}.oci.tar",
        f"images/trainer-{VERSION}.oci.tar",
        f"manifests/horovodjob-{VERSION}.yaml",
    }


def test_the_same_release_gives_the_same_archive(dist: Path) -> None:
    first = write_air_gapped_archive(dist, ROOT, VERSION, NAMES).read_bytes()
    package_charts(ROOT, dist / "charts")
    assert write_air_gapped_archive(dist, ROOT, VERSION, NAMES).read_bytes() == first


def test_chart_and_manifests_use_the_image_of_the_archive(dist: Path) -> None:
    parts = yaml.safe_load_all((dist / "manifests" / f"horovodjob-{VERSION}.yaml").read_text())
    (deployment,) = [part for part in parts if part["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"docker.io/{container['image']}" in NAMES
    assert container.get("imagePullPolicy") in (None, "IfNotPresent")
    chart = read(dist / "charts" / f"horovodjob-operator-{VERSION}.tgz")
    values = yaml.safe_load(chart["horovodjob-operator/values.yaml"])["image"]
    assert (values["repository"].removeprefix("docker.io/"), values["pullPolicy"]) == (
        "horovodjob/operator",
        "IfNotPresent",
    )


def test_sha256sum_accepts_the_checksums_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"c")
    (tmp_path / "SHA256SUMS").write_text(checksums(tmp_path))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    assert "SHA256SUMS" not in checksums(tmp_path)
