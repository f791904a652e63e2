"""A queue of Kueue, and Workloads in it as operator and Kueue leave them: Kueue itself does not run."""

from datetime import UTC, datetime

from support.api_client import Api, Object, is_served, wait_for
from support.kueue.queues import API, GROUP

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = {
    "workloads": "Workload",
    "localqueues": "LocalQueue",
    "clusterqueues": "ClusterQueue",
    "resourceflavors": "ResourceFlavor",
}
NAMESPACED = ("workloads", "localqueues")
# The group ends in k8s.io, which is reserved for definitions that were reviewed.
APPROVAL = {"api-approved.kubernetes.io": "unapproved, for the tests of HorovodJob"}
QUEUE, CLUSTER_QUEUE, FLAVOR = "gpus", "team", "gpu-pool"


class Kueue:
    """Creates a queue with one flavor, and the definitions, which stay: they cost much more than objects."""

    def __init__(self, api: Api, namespace: str, node_labels: Object) -> None:
        self._api, self._namespace = api, namespace
        self._made: list[str] = []
        for plural in KINDS:
            if api.find(f"{DEFINITIONS}/{plural}.{GROUP}") is None:
                api.create(DEFINITIONS, definition(plural))
        for plural in KINDS:
            wait_for(f"{plural} to be served", lambda: is_served(api, f"{API}/{plural}"))  # noqa: B023
        self._create("resourceflavors", FLAVOR, {"nodeLabels": node_labels})
        self._create("clusterqueues", CLUSTER_QUEUE, {"resourceGroups": [{"flavors": [{"name": FLAVOR}]}]})
        self.add_local_queue(QUEUE)

    def add_local_queue(self, name: str) -> None:
        """A LocalQueue of the ClusterQueue."""
        self._create("localqueues", name, {"clusterQueue": CLUSTER_QUEUE})

    def add_workload(self, job: str, *conditions: str, workers: int = 0, queue: str = QUEUE) -> None:
        """The Workload of a job with these conditions; with quota for a launcher and workers, if there are any."""
        pod_sets = [{"name": "launcher", "count": 1}, {"name": "worker", "count": workers}] if workers else []
        now = f"{datetime.now(UTC):%FT%TZ}"
        common = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}
        status = {
            "conditions": [{"type": name, **common} for name in conditions],
            "admission": {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": pod_sets},
        }
        name = f"horovodjob-{job}"
        self._create("workloads", name, {"queueName": queue}, labels={"horovodjob.dev/job": job})
        self._api.patch(f"{self._path('workloads')}/{name}/status", {"status": status})

    def close(self) -> None:
        """Deletes the objects."""
        for path in self._made:
            self._api.delete(path)

    def _create(self, plural: str, name: str, spec: Object, labels: Object | None = None) -> None:
        metadata = {"name": name, "labels": labels or {}}
        body = {"apiVersion": f"{GROUP}/v1beta2", "kind": KINDS[plural], "metadata": metadata, "spec": spec}
        self._api.create(self._path(plural), body)
        self._made.append(f"{self._path(plural)}/{name}")

    def _path(self, plural: str) -> str:
        namespace = f"namespaces/{self._namespace}/" if plural in NAMESPACED else ""
        return f"{API}/{namespace}{plural}"


def remove_definitions(api: Api) -> None:
    """Makes it a cluster without Kueue."""
    for plural in KINDS:
        path = f"{DEFINITIONS}/{plural}.{GROUP}"
        if api.find(path):
            api.delete(path)
            wait_for(f"{plural} to be gone", lambda: api.find(path) is None)  # noqa: B023


def definition(plural: str) -> Object:
    """A definition of a kind of Kueue that accepts all fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta2", "served": True, "storage": True, "subresources": {"status": {}}, "schema": schema}
    names = {"plural": plural, "singular": KINDS[plural].lower(), "kind": KINDS[plural]}
    scope = "Namespaced" if plural in NAMESPACED else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": APPROVAL},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }
