"""A queue of Kueue, and Workloads in it as operator and Kueue leave them: Kueue itself does not run."""

from datetime import UTC, datetime

from support.api_client import Api, Object
from support.kueue.definitions import API, GROUP, NAMESPACED, SCHEMAS, install_kueue, uninstall_kueue

KINDS = dict(SCHEMAS.keys())
QUEUE, CLUSTER_QUEUE, FLAVOR = "gpus", "team", "gpu-pool"


class Kueue:
    """Creates a queue with one flavor."""

    def __init__(self, api: Api, namespace: str, node_labels: Object) -> None:
        self._api, self._namespace = api, namespace
        install_kueue(api)
        self._create("resourceflavors", FLAVOR, {"nodeLabels": node_labels})
        self._create("clusterqueues", CLUSTER_QUEUE, {"resourceGroups": [{"flavors": [{"name": FLAVOR}]}]})
        self._create("localqueues", QUEUE, {"clusterQueue": CLUSTER_QUEUE})

    def add_workload(self, job: str, *conditions: str, workers: int = 0, queue: str = QUEUE) -> None:
        """The Workload of a job with these conditions; with quota for a launcher and workers, if there are any."""
        pod_sets = [{"name": "launcher", "count": 1}, {"name": "worker", "count": workers}] if workers else []
        common = {
            "status": "True",
            "reason": "Test",
            "message": "",
            "lastTransitionTime": f"{datetime.now(UTC):%FT%TZ}",
        }
        status = {
            "conditions": [{"type": name, **common} for name in conditions],
            "admission": {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": pod_sets},
        }
        name = f"horovodjob-{job}"
        self._create("workloads", name, {"queueName": queue}, labels={"horovodjob.dev/job": job})
        self._api.patch(f"{self._path('workloads')}/{name}/status", {"status": status})

    def remove(self) -> None:
        """Deletes the definitions, and with them all objects."""
        uninstall_kueue(self._api)

    def _create(self, plural: str, name: str, spec: Object, labels: Object | None = None) -> None:
        metadata = {"name": name, "labels": labels or {}}
        body = {"apiVersion": f"{GROUP}/v1beta2", "kind": KINDS[plural], "metadata": metadata, "spec": spec}
        self._api.create(self._path(plural), body)

    def _path(self, plural: str) -> str:
        namespace = f"namespaces/{self._namespace}/" if plural in NAMESPACED else ""
        return f"{API}/{namespace}{plural}"
