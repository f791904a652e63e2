"""Flux: the real kustomize-controller.

The tests act as source-controller and helm-controller, some of whose modules cannot be had.
"""

from __future__ import annotations

import hashlib
import http.server
import shutil
import threading
from functools import partial
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
from support.api_client import BASE, ROOT, Api, Object, binary, wait_for
from support.gitops.health import FLUX_JOBS, FLUX_RESULTS
from support.helm import HELM4, Helm
from support.job_driver import timestamp

SYSTEM = "flux-system"
KUSTOMIZATIONS = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations"
SOURCES = "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories"
CHART = "/apis/source.toolkit.fluxcd.io/v1/namespaces/horovodjob-system/ocirepositories/horovodjob-operator"
RELEASE = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/horovodjob-system/helmreleases/horovodjob-operator"
# Resources of the controllers that the tests act as.
PLAYED = (
    ("source.toolkit.fluxcd.io", "v1", "GitRepository", "gitrepositories"),
    ("source.toolkit.fluxcd.io", "v1", "OCIRepository", "ocirepositories"),
    ("source.toolkit.fluxcd.io", "v1", "Bucket", "buckets"),
    ("source.toolkit.fluxcd.io", "v1", "ExternalArtifact", "externalartifacts"),
    ("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
)
UNOBSERVED = {"observedGeneration": -1}
CONDITIONS = {"True": HEALTHY, "Unknown": PROGRESSING, "False": FAILED}


def definition(group: str, version: str, kind: str, plural: str) -> Object:
    """A CRD without a schema, but with the status of an object that its controller has not observed yet."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": anything | {"properties": {"status": {**anything, "default": UNOBSERVED}}}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
    metadata = {"name": f"{plural}.{group}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata} | {
        "spec": spec
    }


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the archives of the commits."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Logs nothing."""


class FluxDelivery(Delivery):
    """A Kustomization and its GitRepository."""

    def __init__(self, api: Api, repository: Repository, name: str, source: str, engine: Flux) -> None:
        super().__init__(api, repository, name)
        self.path, self._source, self._engine = f"{KUSTOMIZATIONS}/{name}", source, engine

    def publish(self) -> None:
        self._engine.publish(self.repository, self._source)

    def applied_revision(self) -> str:
        status = self.get().get("status", {})
        applied = str(status.get("lastAppliedRevision", "")).rpartition(":")[2]
        return applied if self.ready().get("status") == "True" else ""

    def attempted_revision(self) -> str:
        attempted = str(self.get().get("status", {}).get("lastAttemptedRevision", "")).rpartition(":")[2]
        return "" if self.health() == PROGRESSING else attempted

    def health(self) -> str:
        return CONDITIONS[self.ready().get("status", "Unknown")]

    def message(self) -> str:
        return str(self.ready().get("message", ""))

    def ready(self) -> Object:
        """The condition Ready, or an empty object."""
        conditions = self.get().get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == "Ready"), {})


class Flux(Engine):
    """Flux with the controllers that the tests act as."""

    name = "flux"

    def __init__(self, control_plane: EngineControlPlane, api: Api, directory: Path) -> None:
        super().__init__(control_plane, api, directory)
        self._archives = directory / "archives"
        self._chart = ROOT / "charts" / "horovodjob-operator"

    def start(self) -> None:
        self._archives.mkdir()
        serve = partial(SilentHandler, directory=str(self._archives))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.apply(file=kept_file("kustomize-controller", "kustomize.toolkit.fluxcd.io_kustomizations.yaml"))
        self.apply(namespace(SYSTEM), *(definition(*played) for played in PLAYED))
        self.serve(*(f"{group}/{version}/{plural}" for group, version, _, plural in PLAYED))
        self.serve("kustomize.toolkit.fluxcd.io/v1/kustomizations")
        self.start_controller()

    def start_controller(self, *arguments: str) -> None:
        """Starts the controller, with its default number of workers."""
        addresses = ("--metrics-addr=0", "--health-addr=0", "--requeue-dependency=1s")
        program = binary("kustomize-controller")
        self.control_plane.run("kustomize-controller", program, *addresses, *arguments, RUNTIME_NAMESPACE=SYSTEM)

    def publish(self, repository: Repository, source: str) -> None:
        """Acts as source-controller: serves the last commit as an archive, and writes it to the source's status."""
        file = self._archives / f"{repository.revision}.tar.gz"
        repository.archive(file)
        artifact = {
            "url": f"http://127.0.0.1:{self._server.server_port}/{file.name}",
            "path": file.name,
            "revision": f"main@sha1:{repository.revision}",
            "digest": f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}",
            "lastUpdateTime": timestamp(),
            "size": file.stat().st_size,
        }
        self._set_ready(f"{SOURCES}/{source}", artifact=artifact)

    def _set_ready(self, path: str, **status: Any) -> None:
        """Reports that an object is as its spec says."""
        generation = self.api.get(path)["metadata"]["generation"]
        ready = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "played by the tests"}
        ready |= {"lastTransitionTime": timestamp(), "observedGeneration": generation}
        self.api.patch(
            f"{path}/status", {"status": {"observedGeneration": generation, "conditions": [ready], **status}}
        )

    def _add_source(self, repository: Repository, name: str) -> None:
        metadata = {"name": name, "namespace": SYSTEM}
        spec = {"url": f"file://{repository.directory}", "ref": {"branch": "main"}, "interval": "1m"}
        kind = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository"}
        self.apply({**kind, "metadata": metadata, "spec": spec})
        self.publish(repository, name)

    def bootstrap(self, repository: Repository) -> None:
        """Adds what `flux bootstrap` adds: the source and the Kustomization of the cluster folder."""
        repository.commit()
        self._add_source(repository, SYSTEM)
        source = {"kind": "GitRepository", "name": SYSTEM}
        spec = {"interval": "10m", "path": "./clusters/flux", "prune": True, "sourceRef": source}
        kind = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization"}
        self.apply({**kind, "metadata": {"name": SYSTEM, "namespace": SYSTEM}, "spec": spec})

    def release_operator(self) -> None:
        """Acts as helm-controller: installs the chart with Helm and reports that the release is ready."""
        release = wait_for("the release of the operator", lambda: self.api.find(RELEASE))
        helm = Helm(HELM4, self.api.kubeconfig, self.directory / "helm")
        values = yaml.safe_dump(release["spec"].get("values", {}))
        name = ("horovodjob-operator", str(self._chart), "--namespace=horovodjob-system")
        helm("upgrade", "--install", *name, "--values=-", stdin=values)
        self._set_ready(CHART)
        self._set_ready(RELEASE)

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
        self._chart = Path(shutil.copytree(self._chart, self.directory / "next-chart"))
        edit_chart(self._chart)
        self.release_operator()

    def jobs_of_bootstrap(self, repository: Repository) -> Delivery:
        return FluxDelivery(self.api, repository, "training-jobs", SYSTEM, self)

    def deliver(self, repository: Repository, name: str, **changes: Any) -> FluxDelivery:
        repository.commit()
        self._add_source(repository, name)
        return self._add_kustomization(FLUX_JOBS, repository, name, name, **changes)

    def wait_for_results(self, others: Delivery) -> FluxDelivery:
        """Adds the Kustomization that waits for the job `cifar`, beside that of the other jobs."""
        name, namespace = f"{others.namespace}-cifar", others.namespace
        return self._add_kustomization(FLUX_RESULTS, others.repository, name, others.name, targetNamespace=namespace)

    def _add_kustomization(
        self, file: Path, repository: Repository, name: str, source: str, **changes: Any
    ) -> FluxDelivery:
        kustomization = yaml.safe_load(file.read_text())
        kustomization["metadata"]["name"] = name
        kustomization["spec"] |= {"sourceRef": {"kind": "GitRepository", "name": source}, "dependsOn": [], **changes}
        self.apply(kustomization)
        return FluxDelivery(self.api, repository, name, source, self)
