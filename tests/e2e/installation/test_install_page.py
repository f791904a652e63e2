"""The commands of docs/install.md, quickstart.md and upgrade.md: from no operator to a model, and the removal."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from e2e.access import Kubectl
from e2e.install import ROOT, Operator, install_operator
from horovodjob_release.version import project_version
from localcluster.binaries.cache import Binaries
from localcluster.images.store import ImageStore
from localcluster.settings import Cluster, Node
from support.helm import HELM4, Helm
from support.tutorial import page

# It removes the operator, its CustomResourceDefinition and with it all jobs.
pytestmark = pytest.mark.serial

INSTALL, QUICKSTART, UPGRADE = (ROOT / "docs" / f"{name}.md" for name in ("install", "quickstart", "upgrade"))
NAMESPACE, CLAIM = "training", "training-data"
# A registry that the nodes of the tests cannot reach.
REGISTRY = "example.azurecr.io"
# The demo trains all epochs of this job, in test_demo.py.
SHORT = ("digits.yaml |", "digits.yaml | sed 's|^  worker:|  env: [{name: TRAINER_EPOCHS, value: \"2\"}]\\n&|' |")


@pytest.fixture
def shell(local: Cluster, tmp_path: Path) -> Mapping[str, str]:
    """The environment of a user who has kubectl and Helm 4 on PATH, and a kubeconfig."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in {"kubectl": "kubectl", "helm": HELM4}.items():
        (programs / name).symlink_to(Binaries(local.cache).path(program))
    (programs / "hvj").symlink_to(Path(sys.executable).with_name("hvj"))
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    user = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(local.kubeconfig)}
    return user | {"IMAGE_REGISTRY": REGISTRY}


@pytest.fixture
def registry_images(local: Cluster, images: dict[str, str]) -> Iterator[None]:
    """Tags the images of the node with the names of the registry."""
    store = ImageStore(Node(local), Binaries(local.cache))
    names = {role: f"{REGISTRY}/horovodjob/{role}:{project_version(ROOT)}" for role in ("operator", "trainer")}
    for role, name in names.items():
        store.ctr("images", "tag", "--force", images[role], name)
    yield
    store.ctr("images", "rm", *names.values())


@pytest.fixture
def volume(kubectl: Kubectl, shared_directory: Callable[[str], Path]) -> None:
    """A volume for the page's claim, in place of one that Azure provides."""
    directory = shared_directory("digits")
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")  # from an interrupted run
    kubectl("delete", "persistentvolume", CLAIM, "--ignore-not-found")
    manifest = f"""
        apiVersion: v1
        kind: PersistentVolume
        metadata: {{name: {CLAIM}}}
        spec:
          accessModes: [ReadWriteMany]
          capacity: {{storage: 10Gi}}
          storageClassName: azurefile-csi
          claimRef: {{namespace: {NAMESPACE}, name: {CLAIM}}}
          hostPath: {{path: {directory}}}
    """
    kubectl("apply", "-f", "-", given=manifest)


def test_every_command_from_an_empty_cluster_to_a_model_works(
    operator: Operator,
    shell: Mapping[str, str],
    registry_images: None,
    volume: None,
    helm: Helm,
    kubectl: Kubectl,
    images: dict[str, str],
    tmp_path: Path,
) -> None:
    def follow(document: Path, *sections: str) -> str:
        scripts = [script for section in sections for script in page.blocks(document, "sh", section)]
        assert len(scripts) >= len(sections)
        return "".join(page.run_script(script.replace(*SHORT), ROOT, shell) for script in scripts)

    try:
        follow(UPGRADE, "Removal")
        assert kubectl("get", "crd", "--ignore-not-found", "horovodjobs.horovodjob.dev") == ""
        follow(INSTALL, "1. Install the operator", "2. Check it")
        printed = follow(QUICKSTART, "3. Run a script")
        assert re.search(r"2 ranks, test accuracy 0\.9", printed), "no option names the image or the absence of GPUs"
        kubectl("delete", "horovodjobs", "--all", "-n", "default")
        printed = follow(QUICKSTART, "4. Train a model")
        assert "Succeeded" in printed.splitlines()[-1], "the last command shows the job"
        _, describe, logs = page.blocks(QUICKSTART, "sh", "5. Look at the job")
        assert "all ranks ended with exit code 0" in page.run_script(describe, ROOT, shell)
        log = page.run_script(logs, ROOT, shell)
        assert len(re.findall(r"^Test accuracy: [0-9.]+$", log, re.MULTILINE)) == 1
        (script,) = page.blocks(QUICKSTART, "sh", "6. The model")
        page.run_script(f"cd {tmp_path}\n{script}", ROOT, shell)
        with zipfile.ZipFile(tmp_path / "digits.keras") as model:
            assert "model.weights.h5" in model.namelist()
        follow(UPGRADE, "Upgrade")
        page.run_script(page.blocks(UPGRADE, "sh", "Rollback")[0], ROOT, shell)
        assert kubectl("get", "horovodjob", "digits", "-n", NAMESPACE, "-o", "jsonpath={.status.phase}") == "Succeeded"
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        kubectl("delete", "persistentvolume", CLAIM, "--ignore-not-found")
        install_operator(helm, kubectl, images)
        operator.running()
