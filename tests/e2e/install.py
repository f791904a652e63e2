"""The cluster, the images, and the operator as a user installs it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from e2e.access import Kubectl, wait_for
from e2e.recorder import Recorder
from localcluster.binaries.static_image import ARCHITECTURES, tar
from localcluster.command_line import invoke
from localcluster.images.project import TESTED
from localcluster.settings import DEFAULT_NAME, Cluster, cache_directory
from support.api_client import Api, ApiError, Object
from support.helm import Helm

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "localcluster"
CHARTS = ROOT / "charts"
CHART = CHARTS / "horovodjob-operator"
SYSTEM = "horovodjob-system"
RELEASE = "horovodjob-operator"
OPERATOR = "app.kubernetes.io/name=horovodjob-operator"
OPERATOR_PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
ROOT_IMAGE = "docker.io/horovodjob/e2e-root-user:1"


def kstatus_program() -> str | None:
    """The program that computes the kstatus result of an object: built with the local cluster, or on PATH."""
    return shutil.which("kstatus", path=os.pathsep.join([str(cache_directory() / "bin"), os.environ.get("PATH", "")]))


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that the tests run on."""

    kubeconfig: Path
    local: Cluster | None
    """The local cluster of the project; None for the cluster of KUBECONFIG."""

    def up(self) -> None:
        """Starts the local cluster; a given cluster runs already."""
        if self.local:
            self.command("up")

    def kubectl(self) -> Kubectl:
        """kubectl for this cluster."""
        built = Cluster().cache / "bin" / "kubectl"
        program = str(built) if built.exists() else shutil.which("kubectl")
        assert program, "there is no kubectl on PATH"
        return Kubectl(program, self.kubeconfig)

    def command(self, *arguments: str) -> None:
        """A command of the local cluster."""
        assert self.local
        invoke(self.local, *arguments)


def given_kubeconfig() -> Path | None:
    """KUBECONFIG, if it names another cluster than a local one. CLUSTER_NAME selects a local cluster."""
    given = os.environ.get("KUBECONFIG", "")
    own = Cluster(os.environ.get("CLUSTER_NAME", DEFAULT_NAME)).kubeconfig
    return Path(given).absolute() if given and Path(given).absolute() != own else None


def target() -> Target:
    """The cluster of KUBECONFIG, else the local one."""
    if given := given_kubeconfig():
        return Target(given, None)
    local = Cluster(os.environ.get("CLUSTER_NAME", DEFAULT_NAME))
    return Target(local.kubeconfig, local)


def images(on: Target) -> dict[str, str]:
    """References of the images of the tests by role, built and in the local cluster's store.

    OPERATOR_IMAGE, DASHBOARD_IMAGE, HVJ_IMAGE, TRAINER_IMAGE and MPI_IMAGE name others, which the cluster has or can
    pull. A given cluster pulls the rest from IMAGE_REGISTRY.
    """
    given = {role: os.environ.get(f"{role.upper()}_IMAGE", "") for role in TESTED}
    wanted = [role for role, name in given.items() if not name]
    if not wanted:
        return given
    program = str(CLUSTER / "images")
    if on.local:
        subprocess.run([sys.executable, program, "build", *wanted], check=True)
    else:
        assert os.environ.get("IMAGE_REGISTRY"), f"IMAGE_REGISTRY must name the registry of the images {wanted}"
    built = json.loads(subprocess.run([sys.executable, program, "names"], capture_output=True, check=True).stdout)
    if on.local:
        on.command("load-image", *(built[role]["archive"] for role in wanted if built[role]["archive"]))
    return given | {role: built[role]["image"] for role in wanted}


def load_root_image(on: Target, directory: Path) -> str:
    """An image without a user, which runs as root."""
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


def operator_values(images: dict[str, str]) -> tuple[str, ...]:
    """Options of Helm for one pod of the operator, with these images."""
    repository, _, tag = images["operator"].rpartition(":")
    values = f"replicas=1,image.repository={repository},image.tag={tag},tests.image={images['trainer']}"
    return ("--set", values)


def install_operator(helm: Helm, kubectl: Kubectl, images: dict[str, str]) -> None:
    """`helm upgrade --install` of the chart, in a namespace at Pod Security restricted, until the operator is ready.

    Objects that were applied from the manifests become part of the release, except for the Deployment: its selector
    cannot change, so delete it first.
    """
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}}
    kubectl("apply", "-f", "-", given=json.dumps(namespace))
    install = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, "--wait", "--timeout=15m")
    helm(*install, "--take-ownership", "--force-conflicts", *operator_values(images))


class Operator:
    """The operator's process, and the complete log of all its pods."""

    def __init__(self, api: Api, on: Target) -> None:
        self._api, self._target = api, on
        self.pods = Recorder(api, OPERATOR_PODS, OPERATOR).begin()
        self._known_restarts = {pod["metadata"]["uid"]: _restarts(pod) for pod in self.pods.now.values()}
        self._lines: list[str] = []
        self._followed: dict[str, set[str]] = defaultdict(set)
        self._death = ""
        threading.Thread(target=self._follow_all, daemon=True, name="operator logs").start()

    @property
    def lines(self) -> list[str]:
        """The log lines of all containers, each from its start."""
        assert not self._death, f"the operator's log is no longer followed: {self._death}"
        return self._lines

    def restarted(self) -> bool:
        """Whether the first container or pod has been replaced since these tests began."""
        pods = {uid: versions[-1] for uid, versions in list(self.pods.history.items()) if versions}
        return any(_restarts(pod) != self._known_restarts.get(uid) for uid, pod in pods.items())

    def catch_up(self) -> None:
        """Waits until `lines` contains the present log of the present containers."""
        running = self.running()
        log = self._api.text(f"{OPERATOR_PODS}/{running}/log").splitlines()
        wait_for("the newest line of the log", lambda: not log or log[-1] in self.lines)

    def unread(self) -> list[str]:
        """The pods with containers, since these tests began, that have a log outside `lines`."""
        pods = [versions[-1] for versions in list(self.pods.history.values()) if versions]
        return [pod["metadata"]["name"] for pod in pods if self._expected(pod) > len(self._followed[_uid(pod)])]

    def _expected(self, pod: Object) -> int:
        """How many containers of a pod these tests must have followed."""
        started = any(one.get("containerID") for one in pod.get("status", {}).get("containerStatuses", ()))
        return int(started) + _restarts(pod) - self._known_restarts.get(_uid(pod), 0)

    def _follow_all(self) -> None:
        try:
            while True:
                for pod in list(self.pods.now.values()):
                    for container, previous in _containers(pod).items():
                        if container not in self._followed[_uid(pod)]:
                            self._followed[_uid(pod)].add(container)
                            arguments = (pod["metadata"]["name"], container, previous)
                            threading.Thread(target=self._follow, args=arguments, daemon=True).start()
                time.sleep(0.1)
        except BaseException as error:
            self._death = repr(error)

    def _follow(self, pod: str, container: str, previous: bool) -> None:
        path = f"{OPERATOR_PODS}/{pod}/log?follow=true" + ("&previous=true" if previous else "")
        read = 0
        while True:
            try:
                for number, line in enumerate(self._api.lines(path, read_seconds=3600)):
                    if number >= read:
                        self._lines.append(line)
                        read += 1
            except (ApiError, http.client.HTTPException, OSError) as error:
                self._lines.append(json.dumps({"level": "TEST", "message": f"the log of {pod} was cut off: {error}"}))
            present = self.pods.now.get((SYSTEM, pod))
            if previous or not present or self.container(present) != container:
                return
            time.sleep(0.5)

    @staticmethod
    def container(pod: Object) -> str:
        """ID of the running container, or an empty string."""
        statuses = pod.get("status", {}).get("containerStatuses", ())
        return next((_id(one["containerID"]) for one in statuses if one["state"].get("running")), "")

    def running(self) -> str:
        """Waits for a ready pod of the operator and returns its name."""

        def poll() -> str:
            for pod in list(self.pods.now.values()):
                conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", ())}
                if conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp"):
                    return str(pod["metadata"]["name"])
            return ""

        return wait_for("a ready operator", poll)

    def kill(self) -> None:
        """Kills the process with SIGKILL; the kubelet restarts the container in the same pod."""
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
        wait_for("another container of the operator", lambda: self._other_container(container))

    def _other_container(self, old: str) -> bool:
        running = [self.container(pod) for pod in list(self.pods.now.values())]
        return any(container and container != old for container in running)

    def delete(self) -> None:
        """Kills the process with SIGKILL and deletes its pod at once: the Deployment creates another."""
        name = self.running()
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self._api.request("DELETE", f"{OPERATOR_PODS}/{name}", body)
        wait_for("the operator has no pod", lambda: (SYSTEM, name) not in self.pods.now)


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _restarts(pod: Object) -> int:
    return sum(one["restartCount"] for one in pod.get("status", {}).get("containerStatuses", ()))


def _containers(pod: Object) -> dict[str, bool]:
    """IDs of the containers of a pod that have started, and whether each is the previous one."""
    found = {}
    for one in pod.get("status", {}).get("containerStatuses", ()):
        if ended := one.get("lastState", {}).get("terminated"):
            found[_id(ended["containerID"])] = True
        if one.get("containerID") and "waiting" not in one["state"]:
            found[_id(one["containerID"])] = False
    return found


def _id(container: str) -> str:
    return container.rpartition("/")[2]
