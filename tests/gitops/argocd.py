"""Argo CD: the real application controller and repository server, with a Redis in memory."""

from __future__ import annotations

import shutil
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
from support.api_client import ROOT, Api, Object, binary, own_address, wait_for
from support.gitops.health import GITOPS
from support.helm import HELM3

SYSTEM = "argocd"
APPLICATIONS = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
REDIS_PORT, REPOSITORY_PORT = 20379, 20081
HEALTH = {"Healthy": HEALTHY, "Progressing": PROGRESSING, "Degraded": FAILED}
# Argo CD runs `kustomize build`, of which kubectl has a copy.
KUSTOMIZE = """#!/bin/sh
[ "$1" = build ] || { echo v5.8.1; exit; }
shift
exec %s kustomize "$@"
"""


def initial_settings() -> list[Object]:
    """What Argo CD's installation creates: settings, a Secret, and the project `default`."""
    metadata = {"namespace": SYSTEM, "labels": {"app.kubernetes.io/part-of": "argocd"}}
    permitted = {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]}
    project = permitted | {"clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", **metadata}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "argocd-secret", **metadata}},
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default", **metadata},
            "spec": project,
        },
    ]


class ArgoDelivery(Delivery):
    """An Application."""

    def __init__(self, api: Api, repository: Repository, name: str) -> None:
        super().__init__(api, repository, name)
        self.path = f"{APPLICATIONS}/{name}"

    def publish(self) -> None:
        """Acts as the webhook of a Git server."""
        self.api.patch(self.path, {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}})

    @property
    def status(self) -> Object:
        status: Object = self.get().get("status", {})
        return status

    def applied_revision(self) -> str:
        sync = self.status.get("sync", {})
        return str(sync["revision"]) if sync.get("status") == "Synced" else ""

    def health(self) -> str:
        reported = str(self.status.get("health", {}).get("status", "Progressing"))
        return HEALTH.get(reported, reported)

    def wait_health(self, wanted: str) -> None:
        """Waits for this health, with the refresh that Argo CD otherwise does every two to three minutes."""
        self.publish()
        super().wait_health(wanted)

    def message(self) -> str:
        status = self.status
        operation = status.get("operationState", {})
        results = operation.get("syncResult", {}).get("resources", ())
        said = [str(one["message"]) for one in (*status.get("conditions", ()), *results) if one.get("message")]
        return "\n".join([str(operation.get("message", "")), *said])


class ArgoCD(Engine):
    """Argo CD without its server and command line."""

    name = "argocd"

    def __init__(self, control_plane: EngineControlPlane, api: Api, directory: Path) -> None:
        super().__init__(control_plane, api, directory)
        self._charts = directory / "charts"

    def start(self) -> None:
        files = (kept_file("argocd", file) for file in ("application-crd.yaml", "appproject-crd.yaml"))
        self.apply(namespace(SYSTEM), files=files)
        self.serve("argoproj.io/v1alpha1/applications", "argoproj.io/v1alpha1/appprojects")
        self.apply(*initial_settings())
        self.start_controllers()

    def start_controllers(self) -> None:
        """Starts the processes, which find `helm` and `kustomize` on their PATH."""
        programs = self.directory / "bin"
        programs.mkdir()
        (programs / "helm").symlink_to(binary(HELM3))
        (programs / "kustomize").write_text(KUSTOMIZE % binary("kubectl"))
        (programs / "kustomize").chmod(0o755)
        address = own_address()
        common = ("--redis", f"{address}:{REDIS_PORT}", "--loglevel=info")
        variables = {
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            # Its timeout.reconciliation: some states are noticed only then, by default every two to three minutes.
            "ARGOCD_RECONCILIATION_TIMEOUT": "10s",
            "ARGOCD_RECONCILIATION_JITTER": "0s",
            "ARGOCD_ASK_PASS_SOCK": str(self.directory / "ask-pass.sock"),
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        }
        run, program = self.control_plane.run, binary("argocd")
        run("redis", program, "redis", f"{address}:{REDIS_PORT}")
        server = ["--address", address, "--port", str(REPOSITORY_PORT), "--disable-tls", "--metrics-port=0"]
        run("argocd-repo-server", program, "argocd-repo-server", *common, *server, **variables)
        for port in (REDIS_PORT, REPOSITORY_PORT):
            self.control_plane.wait_listening(address, port)
        # The metrics of both, which nobody reads, are on a port that the kernel chooses.
        controller = ["--repo-server", f"{address}:{REPOSITORY_PORT}", "--repo-server-plaintext"]
        controller += ["--metrics-port=0", "--namespace", SYSTEM]
        controller += ["--kubeconfig", str(self.control_plane.kubeconfig)]
        run(
            "argocd-application-controller", program, "argocd-application-controller", *common, *controller, **variables
        )

    def _applied(self, application: Object, repository: Repository) -> Object:
        """An Application as the documentation has it, with the addresses of the tests."""
        source = application["spec"]["source"]
        source["repoURL"] = f"file://{self._charts}" if "chart" in source else f"file://{repository.directory}"
        if chart := source.pop("chart", ""):
            source |= {"path": chart, "targetRevision": "main"}
        return application

    def bootstrap(self, repository: Repository) -> None:
        """Adds the health script and applies the cluster folder. The chart comes from Git, not from a registry."""
        repository.commit()
        self._repository = Repository(self._charts)
        shutil.copytree(ROOT / "charts" / "horovodjob-operator", self._charts / "horovodjob-operator")
        self._repository.commit()
        self.apply(files=[GITOPS / "argocd" / "argocd-cm.yaml"])
        built = self.api.kubectl("kustomize", str(repository.directory / "clusters" / "argocd")).stdout
        self.apply(*(self._applied(application, repository) for application in yaml.safe_load_all(built)))

    def release_operator(self) -> None:
        self.make_operator_ready()
        ArgoDelivery(self.api, self._repository, "horovodjob-operator").wait_health(HEALTHY)

    def remove_definition(self, directory: Path) -> None:
        """The chart of the operator no longer installs the definition."""
        operator = ArgoDelivery(self.api, self._repository, "horovodjob-operator")
        self.api.patch(operator.path, {"spec": {"source": {"helm": {"valuesObject": {"crds": {"enabled": False}}}}}})
        wait_for("a decision about what to prune", lambda: self._has_pruned_or_refused(operator))

    def _has_pruned_or_refused(self, operator: ArgoDelivery) -> bool:
        operation = operator.status.get("operationState", {})
        results = operation.get("syncResult", {}).get("resources", ())
        return "finishedAt" in operation and any(one.get("status") in ("Pruned", "PruneSkipped") for one in results)

    def upgrade_operator(self) -> None:
        edit_chart(self._charts / "horovodjob-operator")
        ArgoDelivery(self.api, self._repository, "horovodjob-operator").deploy()

    def jobs_of_bootstrap(self, repository: Repository) -> Delivery:
        return ArgoDelivery(self.api, repository, "training-jobs")

    def deliver(self, repository: Repository, name: str, **changes: Any) -> ArgoDelivery:
        application = yaml.safe_load((GITOPS / "argocd" / "jobs.yaml").read_text())
        application["metadata"]["name"] = name
        application["metadata"].get("annotations", {}).update(changes.pop("annotations", {}))
        application["spec"] |= changes
        repository.commit()
        self.apply(self._applied(application, repository))
        return ArgoDelivery(self.api, repository, name)
