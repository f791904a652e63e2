"""The archive for clusters without access to a registry, and the names of images in it."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from horovodjob_release.airgapped import write_air_gapped_archive
from horovodjob_release.errors import ReleaseError
from horovodjob_release.images import ROLES, image_name
from horovodjob_release.install import EXAMPLE_PROJECT, EXAMPLE_REGISTRY, package_charts, write_manifests
from horovodjob_release.oci import write_oci_archive
from horovodjob_release.publication import Publication
from horovodjob_release.steps import check_sizes
from horovodjob_release.version import project_version
from release.image import read
from support.api_client import ROOT, binary
from support.helm import operator_images

VERSION = project_version(ROOT)
PUBLICATION = Publication("registry.example.com/team", "team/training")
NAMES = [image_name(PUBLICATION.registry, role, VERSION) for role in ROLES]


@pytest.fixture(scope="module")
def dist(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifacts of a release, with small images."""
    made = tmp_path_factory.mktemp("dist")
    for name in NAMES:
        write_oci_archive(image, name, made / f"{name.split('/')[-1].replace(':', '-')}.oci.tar", {})
    package_charts(ROOT, made, PUBLICATION)
    write_manifests(ROOT, made, PUBLICATION)
    return made


def test_the_archive_is_complete_reproducible_and_has_valid_checksums(dist: Path, tmp_path: Path) -> None:
    made = write_air_gapped_archive(dist, ROOT, VERSION, NAMES)
    with tarfile.open(made) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    charts = {f"charts/{name}-{VERSION}.tgz" for name in ("horovodjob", "horovodjob-operator")}
    manifests = {f"manifests/horovodjob-{name}" for name in (f"{VERSION}.yaml", f"crd-{VERSION}.yaml")}
    manifests.add(f"manifests/horovodjob-manifests-{VERSION}.tar.gz")
    archives = {f"images/{role}-{VERSION}.oci.tar" for role in ROLES}
    assert files == {"INSTALL", "LICENSE", "SHA256SUMS", "docs/air-gapped.md", *charts, *archives, *manifests}
    first = made.read_bytes()
    package_charts(ROOT, dist, PUBLICATION)
    write_manifests(ROOT, dist, PUBLICATION)
    assert write_air_gapped_archive(dist, ROOT, VERSION, NAMES).read_bytes() == first


def chart_images(charts: Path) -> set[str]:
    """The images of the charts, with the dashboard and with a schedule."""
    operator = rendered(charts / f"horovodjob-operator-{VERSION}.tgz", "dashboard.enabled=true")
    job = rendered(charts / f"horovodjob-{VERSION}.tgz", "command={train},schedule.cron=@daily")
    (schedule,) = [part["spec"] for part in yaml.safe_load_all(job) if part["kind"] == "CronJob"]
    containers = schedule["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return operator_images(operator) | {each["image"] for each in containers}


def rendered(chart: Path, values: str) -> str:
    """The objects of a chart with its default values and these."""
    command = [binary("helm4"), "template", "x", str(chart), "--set", values]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_charts_and_manifests_of_a_release_name_its_images_and_its_project(dist: Path) -> None:
    parts = yaml.safe_load_all((dist / f"horovodjob-{VERSION}.yaml").read_text())
    (deployment,) = [part for part in parts if part["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image_name(PUBLICATION.registry, "operator", VERSION)
    assert container.get("imagePullPolicy") in (None, "IfNotPresent")
    assert chart_images(dist) == set(NAMES)
    listed: set[str] = set()
    for name in ("horovodjob-operator", "horovodjob"):
        text = read(dist / f"{name}-{VERSION}.tgz")[f"{name}/Chart.yaml"].decode()
        assert [word for word in (EXAMPLE_PROJECT, EXAMPLE_REGISTRY) if word in text] == []
        metadata = yaml.safe_load(text)
        listed |= {each["image"] for each in yaml.safe_load(metadata["annotations"]["artifacthub.io/images"])}
        project = f"https://github.com/{PUBLICATION.project}"
        assert (metadata["home"], metadata["sources"]) == (project, [project])
        assert metadata["maintainers"][0]["url"] == project
        icon = metadata["icon"].removeprefix(f"https://raw.githubusercontent.com/{PUBLICATION.project}/HEAD/")
        assert (ROOT / icon).read_text().startswith("<svg ")
    assert listed == set(NAMES)


def test_a_release_for_no_registry_has_names_without_one(tmp_path: Path) -> None:
    package_charts(ROOT, tmp_path, Publication())
    write_manifests(ROOT, tmp_path, Publication())
    assert chart_images(tmp_path) == {f"horovodjob/{role}:{VERSION}" for role in ROLES}
    assert f" image: horovodjob/operator:{VERSION}\n" in (tmp_path / f"horovodjob-{VERSION}.yaml").read_text()


def test_kustomize_builds_the_released_manifests_with_the_images_of_the_release(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"horovodjob-manifests-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / f"horovodjob-manifests-{VERSION}"
    component = {"resources": ["base"], "components": ["components/dashboard", "components/ha"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(component))
    command = [binary("kubectl"), "kustomize", str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r" image: (\S+/\S+)", built)) == {
        NAMES[ROLES.index("operator")],
        NAMES[ROLES.index("dashboard")],
    }
    assert f"image: {NAMES[ROLES.index('trainer')]}\n" in (folder / "examples" / "digits.yaml").read_text()
    texts = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert [path for path, text in texts.items() if EXAMPLE_REGISTRY in text] == []
    scripts = {str(path.relative_to(ROOT / "manifests")) for path in (ROOT / "manifests" / "examples").rglob("*.py")}
    assert scripts <= {str(path.relative_to(folder)) for path in texts}
    assert os.access(folder / "gitops" / "example" / "delete-earlier-runs.sh", os.X_OK)


def test_a_file_that_a_release_page_refuses_ends_the_release(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2 * 1024**3 - 1)
        check_sizes(tmp_path)
        file.truncate(2 * 1024**3)
    with pytest.raises(ReleaseError, match="large has 2147483648 bytes"):
        check_sizes(tmp_path)
