"""Flux: the real source-controller, kustomize-controller and helm-controller."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import yaml

from gitops.engine import (
    FAILED,
    HEALTHY,
    PROGRESSING,
    Delivery,
    Engine,
    EngineControlPlane,
    edit_chart,
    kept_file,
    namespace,
)
from gitops.git_repository import Repository
from support.api_client import BASE, ROOT, Api, Object, binary, own_address, wait_for
from support.gitops.health import FLUX_JOBS, FLUX_RESULTS
from support.helm import HELM4
from support.servers import GitHandler, Registry, Server

SYSTEM = "flux-system"
KUSTOMIZATIONS = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations"
SOURCES = "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories"
CHART = "/apis/source.toolkit.fluxcd.io/v1/namespaces/horovodjob-system/ocirepositories/horovodjob-operator"
RELEASE = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/horovodjob-system/helmreleases/horovodjob-operator"
# The resources of each controller; the first one is served last.
RESOURCES = {
    "source-controller": (
        "gitrepositories",
        "ocirepositories",
        "buckets",
        "externalartifacts",
        "helmcharts",
        "helmrepositories",
    ),
    "kustomize-controller": ("kustomizations",),
    "helm-controller": ("helmreleases",),
}
GROUPS = {"source-controller": "source", "kustomize-controller": "kustomize", "helm-controller": "helm"}
VERSIONS = {"source-controller": "v1", "kustomize-controller": "v1", "helm-controller": "v2"}
STORAGE_PORT = 20090
CONDITIONS = {"True": HEALTHY, "Unknown": PROGRESSING, "False": FAILED}


class FluxDelivery(Delivery):
    """A Kustomization and its GitRepository."""

    def __init__(self, api: Api, repository: Repository, name: str, source: str, engine: Flux) -> None:
        super().__init__(api, repository, name)
        self.path, self._source, self._engine = f"{KUSTOMIZATIONS}/{name}", source, engine

    def publish(self) -> None:
        self._engine.publish(self._source)

    def applied_revision(self) -> str:
        status = self.get().get("status", {})
        applied = str(status.get("lastAppliedRevision", "")).rpartition(":")[2]
        return applied if self.ready().get("status") == "True" else ""

    def reconcile(self) -> None:
        """Applies the last commit again, as the controller does after each interval."""
        self._engine.request(self.path)

    def health(self) -> str:
        return CONDITIONS[self.ready().get("status", "Unknown")]

    def message(self) -> str:
        return str(self.ready().get("message", ""))

    def ready(self) -> Object:
        """The condition Ready, or an empty object."""
        conditions = self.get().get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == "Ready"), {})


class Flux(Engine):
    """Flux without its notification-controller and its command line."""

    name = "flux"

    def __init__(self, control_plane: EngineControlPlane, api: Api, directory: Path) -> None:
        super().__init__(control_plane, api, directory)
        self._chart = ROOT / "charts" / "horovodjob-operator"
        self._address = own_address()

    def start(self) -> None:
        self._git = Server(GitHandler, self._address)
        self._registry = Registry(self._address)
        self._push_chart(self._chart)
        self._push_chart(ROOT / "charts" / "horovodjob")
        kinds = [
            (controller, f"{GROUPS[controller]}.toolkit.fluxcd.io", plural)
            for controller, plurals in RESOURCES.items()
            for plural in plurals
        ]
        files = (kept_file(controller, f"{group}_{plural}.yaml") for controller, group, plural in kinds)
        self.apply(namespace(SYSTEM), files=files)
        self.serve(*(f"{group}/{VERSIONS[controller]}/{plural}" for controller, group, plural in kinds))
        self._start_controllers()

    def _start_controllers(self) -> None:
        """Starts the controllers, with their default numbers of workers."""
        storage = f"{self._address}:{STORAGE_PORT}"
        path = self.directory / "artifacts"
        path.mkdir()
        arguments = {
            "source-controller": (
                f"--storage-addr={storage}",
                f"--storage-adv-addr={storage}",
                f"--storage-path={path}",
            ),
            "kustomize-controller": (),
            "helm-controller": (),
        }
        common = ("--metrics-addr=0", "--health-addr=0", "--requeue-dependency=1s")
        for controller, own in arguments.items():
            self.control_plane.run(controller, binary(controller), *common, *own, RUNTIME_NAMESPACE=SYSTEM)
        self.control_plane.wait_listening(self._address, STORAGE_PORT)

    def _push_chart(self, chart: Path) -> None:
        packages = self.directory / "packages"
        packages.mkdir(exist_ok=True)
        self._registry.push(binary(HELM4), chart, packages)

    def publish(self, source: str) -> None:
        """Acts as the webhook of a Git server."""
        self.request(f"{SOURCES}/{source}")

    def request(self, path: str) -> None:
        """Has a controller reconcile an object at once, as `flux reconcile` does."""
        self.api.patch(path, {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": str(time.time_ns())}}})

    def add_source(self, repository: Repository, name: str) -> None:
        """Adds a GitRepository."""
        metadata = {"name": name, "namespace": SYSTEM}
        url = f"http://{self._git.address}{repository.directory}/.git"
        spec = {"url": url, "ref": {"branch": "main"}, "interval": "1m"}
        kind = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository"}
        self.apply({**kind, "metadata": metadata, "spec": spec})

    def _replace_addresses(self, repository: Repository) -> None:
        """The registry of the tests has no TLS."""
        for file in repository.directory.rglob("*.yaml"):
            text = file.read_text()
            if "oci://" in text:
                text = re.sub(r"oci://[^/]*/", f"oci://{self._registry.address}/", text)
                file.write_text(text.replace("  interval: 1h\n---", "  interval: 1h\n  insecure: true\n---"))

    def bootstrap(self, repository: Repository) -> None:
        """Adds what `flux bootstrap` adds: the source and the Kustomization of the cluster folder."""
        self._replace_addresses(repository)
        repository.commit()
        self.add_source(repository, SYSTEM)
        source = {"kind": "GitRepository", "name": SYSTEM}
        spec = {"interval": "10m", "path": "./clusters/flux", "prune": True, "sourceRef": source}
        kind = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization"}
        self.apply({**kind, "metadata": {"name": SYSTEM, "namespace": SYSTEM}, "spec": spec})

    def release_operator(self) -> None:
        self.make_operator_ready()
        wait_for("the release of the operator", self._is_released)

    def _is_released(self) -> bool:
        conditions = self.api.get(RELEASE).get("status", {}).get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def remove_definition(self, directory: Path) -> None:
        """The definition is an asset of a release that a Kustomization applies."""
        repository = Repository(directory)
        folder = directory / "definition"
        folder.mkdir()
        shutil.copy(BASE / "crd.yaml", folder)
        delivery = self.deliver(repository, "definition", path="./definition")
        delivery.wait_applied()
        (folder / "crd.yaml").unlink()
        (folder / "other.yaml").write_text(yaml.safe_dump(namespace("other")))
        delivery.deploy()

    def upgrade_operator(self) -> None:
        self._chart = Path(shutil.copytree(self._chart, self.directory / "next" / "horovodjob-operator"))
        edit_chart(self._chart)
        self._push_chart(self._chart)
        self.request(CHART)
        wait_for(
            "the next release", lambda: "0.1.1" in str(self.api.get(RELEASE)["status"].get("lastAttemptedRevision"))
        )
        self.make_operator_ready()
        wait_for("the next release", lambda: self._released_version() == "0.1.1")

    def _released_version(self) -> str:
        history = self.api.get(RELEASE)["status"].get("history", [{}])
        return str(history[0].get("chartVersion")).partition("+")[0] if self._is_released() else ""

    def jobs_of_bootstrap(self, repository: Repository) -> Delivery:
        return FluxDelivery(self.api, repository, "training-jobs", SYSTEM, self)

    def deliver(self, repository: Repository, name: str, **changes: Any) -> FluxDelivery:
        repository.commit()
        self.add_source(repository, name)
        return self._add_kustomization(FLUX_JOBS, repository, name, name, **changes)

    def wait_for_results(self, others: Delivery) -> FluxDelivery:
        """Adds the Kustomization that waits for the job `cifar`, beside that of the other jobs."""
        return self._add_kustomization(FLUX_RESULTS, others.repository, f"{others.namespace}-cifar", others.name)

    def _add_kustomization(
        self, file: Path, repository: Repository, name: str, source: str, **changes: Any
    ) -> FluxDelivery:
        kustomization = yaml.safe_load(file.read_text())
        kustomization["metadata"]["name"] = name
        kustomization["spec"] |= {"sourceRef": {"kind": "GitRepository", "name": source}, "dependsOn": [], **changes}
        self.apply(kustomization)
        return FluxDelivery(self.api, repository, name, source, self)
