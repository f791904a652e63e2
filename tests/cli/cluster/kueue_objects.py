"""A queue of Kueue with minimal definitions: Kueue itself does not run."""

from typing import Any

from support.api_client import Api, Object, is_served, wait_for

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
API_VERSION = f"{GROUP}/{VERSION}"
KINDS = {
    "localqueues": ("LocalQueue", "Namespaced"),
    "workloads": ("Workload", "Namespaced"),
    "clusterqueues": ("ClusterQueue", "Cluster"),
    "resourceflavors": ("ResourceFlavor", "Cluster"),
}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUEUE, CLUSTER_QUEUE, FLAVOR = "gpus", "team", "gpu-pool"


def definition(plural: str) -> Object:
    """The CRD of a kind, without a schema."""
    kind, scope = KINDS[plural]
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }


class Kueue:
    """Creates a queue with one flavor, and Workloads in it as operator and Kueue leave them."""

    def __init__(self, api: Api, namespace: str, node_labels: Object) -> None:
        self._api, self._namespace = api, namespace
        for plural in KINDS:
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(plural))
        for plural in KINDS:
            path = self._path(plural)
            wait_for(f"{plural} to be served", lambda path=path: is_served(api, path))  # type: ignore[misc]
        self._create("resourceflavors", FLAVOR, {"nodeLabels": node_labels})
        self._create("clusterqueues", CLUSTER_QUEUE, {"resourceGroups": [{"flavors": [{"name": FLAVOR}]}]})
        self._create("localqueues", QUEUE, {"clusterQueue": CLUSTER_QUEUE})

    def add_workload(self, job: str, *conditions: str, workers: int = 0, queue: str = QUEUE) -> None:
        """The Workload of a job with these conditions; with quota for a launcher and workers, if there are any."""
        pod_sets = [{"name": "launcher", "count": 1}, {"name": "worker", "count": workers}] if workers else []
        status = {
            "conditions": [{"type": name, "status": "True"} for name in conditions],
            "admission": {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": pod_sets},
        }
        labels = {"horovodjob.dev/job": job}
        self._create("workloads", f"horovodjob-{job}", {"queueName": queue}, labels=labels, status=status)

    def remove(self) -> None:
        """Deletes the definitions, and with them all objects."""
        for plural in KINDS:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}"
            self._api.delete(path)
            wait_for("the definition to be deleted", lambda path=path: self._api.find(path) is None)  # type: ignore[misc]

    def _create(self, plural: str, name: str, spec: Object, labels: Object | None = None, **fields: Any) -> None:
        metadata = {"name": name, "labels": labels or {}}
        body = {"apiVersion": API_VERSION, "kind": KINDS[plural][0], "metadata": metadata, "spec": spec}
        self._api.create(self._path(plural), {**body, **fields})

    def _path(self, plural: str) -> str:
        namespace = f"namespaces/{self._namespace}/" if KINDS[plural][1] == "Namespaced" else ""
        return f"/apis/{API_VERSION}/{namespace}{plural}"
