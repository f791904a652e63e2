"""A release as a user gets it: the page with its files, the commands of docs/releases.md and docs/air-gapped.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.access import Kubectl
from e2e.install import RELEASE, ROOT, SYSTEM, Operator, install_operator
from horovodjob_release.images import ROLES, image_name
from horovodjob_release.version import project_version
from localcluster.binaries.cache import Binaries
from localcluster.images.store import ImageStore
from localcluster.settings import Cluster, Node
from support.helm import HELM4, Helm
from support.servers import Registry, ReleasePage
from support.tutorial import page

# It replaces the operator, and removes all jobs of the cluster.
pytestmark = pytest.mark.serial

RELEASES, AIR_GAPPED = ROOT / "docs" / "releases.md", ROOT / "docs" / "air-gapped.md"
VERSION = project_version(ROOT)
# No machine of the tests can reach it.
REGISTRY = "registry.example.com/team"
PUBLISHED = f"https://github.com/OWNER/REPOSITORY/releases/download/v{VERSION}"
CHARTS = "oci://ghcr.io/OWNER/charts"
LOOPBACK = "127.0.0.1"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """What `make release` builds for a registry."""
    made = tmp_path / "dist"
    options = ["--dist", str(made), "--registry", REGISTRY, "--project", "team/training"]
    subprocess.run([sys.executable, str(ROOT / "release"), "build", *options], check=True)
    return made


@pytest.fixture
def user(local: Cluster, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a user with kubectl, Helm 4 and, as on a node, ctr; images that it imports are removed."""
    programs, store = tmp_path / "bin", ImageStore(Node(local), Binaries(local.cache))
    programs.mkdir()
    for name, program in {"kubectl": "kubectl", "helm": HELM4, "ctr": "ctr"}.items():
        (programs / name).symlink_to(Binaries(local.cache).path(program))
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    own = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(local.kubeconfig)}
    yield own | {"CONTAINERD_ADDRESS": str(Node(local).containerd_socket)}
    store.ctr("images", "rm", *(image_name(REGISTRY, role, VERSION) for role in ROLES))


def test_every_file_of_a_release_installs_from_its_page_and_trains_a_model(
    operator: Operator,
    dist: Path,
    user: Mapping[str, str],
    tmp_path: Path,
    helm: Helm,
    kubectl: Kubectl,
    images: dict[str, str],
) -> None:
    release, registry = ReleasePage(LOOPBACK, dist), Registry(LOOPBACK)
    for chart in ("horovodjob-operator", "horovodjob"):
        registry.add(chart, dist / f"{chart}-{VERSION}.tgz")
    directory = tmp_path / "user"
    directory.mkdir()

    def follow(script: str, folder: Path = directory) -> str:
        own = script.replace(PUBLISHED, f"http://{release.address}")
        own = own.replace(CHARTS, f"--plain-http oci://{registry.address}/charts")
        return page.run_script(own.replace("horovodjob/trainer:", f"{REGISTRY}/horovodjob/trainer:"), folder, user)

    check_listed_files(dist)
    try:
        remove_operator(helm, kubectl)
        download, from_registry, without_helm = page.blocks(RELEASES, "sh", "Install a release")
        assert "horovodjob-manifests" in follow(download)
        follow(f"curl --fail --remote-name {PUBLISHED}/horovodjob-{VERSION}-air-gapped.tar")
        (unpack,) = page.blocks(AIR_GAPPED, "sh", "1. Check and unpack")
        follow(unpack)
        unpacked = directory / f"horovodjob-{VERSION}-air-gapped"
        follow(page.blocks(AIR_GAPPED, "sh", "2. Import the images")[0], unpacked)
        follow(from_registry)
        _, with_manifests = page.blocks(AIR_GAPPED, "sh", "3. Install")
        (job,) = page.blocks(AIR_GAPPED, "sh", "4. Run a job")
        assert accuracy(follow(job, unpacked)) > 0.9
        kubectl("delete", "namespace", "training")
        remove_operator(helm, kubectl)
        follow(without_helm)
        follow(with_manifests, unpacked)  # the same objects again
        ranks = follow(re.sub("command: .*", "command: [hostname]", job), unpacked)
        assert sorted(re.findall("^first-worker-.$", ranks, re.MULTILINE)) == ["first-worker-0", "first-worker-1"]
    finally:
        kubectl("delete", "namespace", "training", "--ignore-not-found")
        remove_operator(helm, kubectl)
        install_operator(helm, kubectl, images)
        operator.running()


def check_listed_files(dist: Path) -> None:
    """The list names each file of the page without a folder, and each has its checksum."""
    listed = [line.partition("  ")[2] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert sorted([*listed, "SHA256SUMS"]) == sorted(path.name for path in dist.iterdir())
    assert {f"{role}-{VERSION}.oci.tar" for role in ROLES} < set(listed)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=dist, check=True)


def accuracy(log: str) -> float:
    """What the trainer measured at the end."""
    (found,) = re.findall(r"^Test accuracy: ([0-9.]+)$", log, re.MULTILINE)
    return float(found)


def remove_operator(helm: Helm, kubectl: Kubectl) -> None:
    """Removes the operator and its definition, and with it all jobs, however they were installed."""
    helm("uninstall", RELEASE, "--namespace", SYSTEM, "--ignore-not-found", "--wait")
    kubectl("delete", "-k", str(ROOT / "manifests" / "base"), "--ignore-not-found")
    assert kubectl("get", "crd", "--ignore-not-found", "horovodjobs.horovodjob.dev") == ""
