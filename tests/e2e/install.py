"""The cluster, the images, and the operator as a user installs it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import urllib3

from cluster.settings import DEFAULT_NAME, Cluster
from cluster.static_image import ARCHITECTURES, tar
from e2e.access import Api, Kubectl, Refused, wait_for
from e2e.recorder import Recorder

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "tests" / "cluster"
SYSTEM = "horovodjob-system"
OPERATOR = "app.kubernetes.io/name=horovodjob-operator"
OPERATOR_PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
ROOT_IMAGE = "docker.io/horovodjob/e2e-root-user:1"


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that the tests run on."""

    kubeconfig: Path
    local: Cluster | None
    """The project's own, on this machine; None for one that KUBECONFIG names."""

    def kubectl(self) -> Kubectl:
        """The command line for it."""
        built = Cluster().cache / "bin" / "kubectl"
        program = str(built) if built.exists() else shutil.which("kubectl")
        assert program, "there is no kubectl on PATH"
        return Kubectl(program, self.kubeconfig)

    def command(self, *arguments: str) -> None:
        """A command of the local cluster."""
        assert self.local
        subprocess.run([sys.executable, str(CLUSTER), "--name", self.local.name, *arguments], check=True)


def target() -> Target:
    """The cluster of KUBECONFIG, else the local one, which is brought up. CLUSTER_NAME chooses among local ones."""
    local = Cluster(os.environ.get("CLUSTER_NAME", DEFAULT_NAME))
    given = os.environ.get("KUBECONFIG", "")
    if given and Path(given) != local.kubeconfig:
        assert os.environ.get("IMAGE_REGISTRY"), "KUBECONFIG is set, so IMAGE_REGISTRY has to name the images' registry"
        return Target(Path(given), None)
    found = Target(local.kubeconfig, local)
    found.command("up")
    return found


def images(on: Target) -> dict[str, str]:
    """References of the images of operator, trainer and other MPI, built and in the local cluster's store.

    OPERATOR_IMAGE, TRAINER_IMAGE and MPI_IMAGE name others, which are there already.
    """
    given = {role: os.environ.get(f"{role.upper()}_IMAGE", "") for role in ("operator", "trainer", "mpi")}
    program = str(CLUSTER / "images.py")
    for role in [role for role, name in given.items() if not name and on.local]:
        subprocess.run([sys.executable, program, "build", role], check=True)
    told = json.loads(subprocess.run([sys.executable, program, "names"], capture_output=True, check=True).stdout)
    for role in [role for role, name in given.items() if not name]:
        given[role] = told[role]["image"]
        if on.local:
            on.command("load-image", told[role]["archive"])
    return given


def load_root_image(on: Target, directory: Path) -> str:
    """An image that does not say as whom it runs, which means root."""
    assert on.local
    layer = tar({"true": b"\x7fELF"}, mode=0o755)
    configuration = {
        "architecture": next(iter(ARCHITECTURES.values())),
        "os": "linux",
        "config": {"Entrypoint": ["/true"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(layer)}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [ROOT_IMAGE], "Layers": ["layer.tar"]}]
    files = {"manifest.json": json.dumps(manifest), "config.json": json.dumps(configuration)}
    archive = directory / "root-user.tar"
    archive.write_bytes(tar({name: text.encode() for name, text in files.items()} | {"layer.tar": layer}, mode=0o644))
    on.command("load-image", str(archive))
    return ROOT_IMAGE


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def install_operator(kubectl: Kubectl, image: str, directory: Path) -> None:
    """`kubectl apply -k` on an overlay of manifests/base that names the image, until the operator is ready."""
    name, _, tag = image.rpartition(":")
    overlay = directory / "overlay"
    overlay.mkdir()
    kustomization = {
        "resources": [os.path.relpath(ROOT / "manifests" / "base", overlay)],
        "images": [{"name": "horovodjob/operator", "newName": name, "newTag": tag}],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
    kubectl("apply", "-k", str(overlay))
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/horovodjobs.horovodjob.dev", seconds=70)
    kubectl("-n", SYSTEM, "rollout", "status", "deployment/horovodjob-operator", "--timeout=180s", seconds=190)


class Operator:
    """The operator's process, and all that it says, whatever becomes of its pods."""

    def __init__(self, api: Api, on: Target) -> None:
        self._api, self._target = api, on
        self.pods = Recorder(api, OPERATOR_PODS, OPERATOR).begin()
        self.lines: list[str] = []
        self._followed: set[str] = set()
        threading.Thread(target=self._follow_all, daemon=True, name="operator logs").start()

    def _follow_all(self) -> None:
        while True:
            for pod in list(self.pods.now.values()):
                container = self.container(pod)
                if container not in self._followed and container:
                    self._followed.add(container)
                    name = pod["metadata"]["name"]
                    threading.Thread(target=self._follow, args=(name,), daemon=True, name=f"log of {name}").start()
            time.sleep(0.1)

    def _follow(self, pod: str) -> None:
        try:
            self.lines.extend(self._api.lines(f"{OPERATOR_PODS}/{pod}/log?follow=true", read_seconds=3600))
        except (Refused, urllib3.exceptions.HTTPError, OSError) as error:
            self.lines.append(json.dumps({"level": "TEST", "message": f"the log of {pod} was cut off: {error}"}))

    @staticmethod
    def container(pod: dict[str, object]) -> str:
        """Id of the running container, or nothing."""
        status = pod.get("status")
        statuses = status.get("containerStatuses", ()) if isinstance(status, dict) else ()
        return next((one["containerID"].rpartition("/")[2] for one in statuses if one["state"].get("running")), "")

    def running(self) -> str:
        """The name of the operator's pod, when it runs and is ready."""

        def look() -> str:
            for pod in list(self.pods.now.values()):
                conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
                if conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp"):
                    return str(pod["metadata"]["name"])
            return ""

        return wait_for("a ready operator", look, 120)

    def kill(self) -> None:
        """SIGKILL for the process; the kubelet starts another in the same pod."""
        pod = self.pods.now[SYSTEM, self.running()]
        container = self.container(pod)
        assert self._target.local
        assert re.fullmatch("[0-9a-f]{64}", container)
        killed = 0
        for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
            try:
                if container in cgroup.read_text():
                    os.kill(int(cgroup.parent.name), signal.SIGKILL)
                    killed += 1
            except (FileNotFoundError, ProcessLookupError):
                continue
        assert killed, "the operator's process was not found"
        wait_for("another container of the operator", lambda: self._other_container(container), 120)

    def _other_container(self, old: str) -> bool:
        running = [self.container(pod) for pod in list(self.pods.now.values())]
        return any(container and container != old for container in running)

    def delete(self) -> None:
        """SIGKILL for the process, and its pod is gone at once: the Deployment makes another."""
        name = self.running()
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self._api.request("DELETE", f"{OPERATOR_PODS}/{name}", body)
        wait_for("the operator's pod is gone", lambda: (SYSTEM, name) not in self.pods.now)
