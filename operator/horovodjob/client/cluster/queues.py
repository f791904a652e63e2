"""Queues of Kueue: the nodes that a queue has, and those that its jobs wait for."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import LABEL_JOB, LABEL_ROLE, POOL_LABELS, Role
from horovodjob.client.cluster import kube, node_pools
from horovodjob.client.errors import NotFound

Object = dict[str, Any]
GROUP = "kueue.x-k8s.io"
JOB_UID = f"{GROUP}/job-uid"


@dataclass(frozen=True, slots=True)
class Queue:
    """A LocalQueue, the node labels of the flavors of its ClusterQueue, and the Workloads in it."""

    name: str
    cluster_queue: str
    flavors: Mapping[str, Mapping[str, str]]
    workloads: tuple[Object, ...]

    @property
    def pools(self) -> list[str]:
        """The node pools that the flavors name."""
        labels = (labels[name] for labels in self.flavors.values() for name in POOL_LABELS if name in labels)
        return sorted(set(labels))

    def nodes(self, nodes: Iterable[Object]) -> list[Object]:
        """The nodes with the labels of a flavor. A flavor without labels has all nodes with GPUs, or else all nodes."""
        nodes = list(nodes)
        gpu_nodes = [node for node in nodes if node_pools.is_gpu_node(node)] or nodes
        chosen: dict[str, Object] = {}
        for labels in self.flavors.values():
            for node in nodes if labels else gpu_nodes:
                if labels.items() <= (node["metadata"].get("labels") or {}).items():
                    chosen[node["metadata"]["name"]] = node
        return list(chosen.values())

    def jobs(self, condition: str | None = None) -> list[str]:
        """The jobs whose Workload has this condition; None: those that wait for quota."""
        found = (
            each
            for each in self.workloads
            if not _is_true(each, "Finished")
            and (_is_true(each, condition) if condition else not _is_true(each, "QuotaReserved"))
        )
        return sorted(job for each in found if (job := _job(each)))

    def awaited_nodes(self, pods: Iterable[Object]) -> int:
        """How many nodes the jobs with quota wait for, one for each worker without a node.

        Before the admission, while an admission check such as of a ProvisioningRequest is pending, a job has no pods.
        """
        reserved = [
            each for each in self.workloads if _is_true(each, "QuotaReserved") and not _is_true(each, "Finished")
        ]
        pending = sum(_workers(each) for each in reserved if not _is_true(each, "Admitted"))
        admitted = {_job(each) for each in reserved if _is_true(each, "Admitted")}
        return pending + sum(
            _is_unplaced_worker(pod) and pod["metadata"]["labels"][LABEL_JOB] in admitted for pod in pods
        )


def find(name: str, namespace: str, *, with_flavors: bool = True) -> Queue | None:
    """The LocalQueue with this name; None if there is none, or no Kueue. Raises ApiException without the rights.

    Flavors are objects of the cluster, which a user of a namespace may not read.
    """
    root = _root()
    if root is None:
        return None
    queue = _get(f"{root}/namespaces/{namespace}/localqueues/{name}")
    if queue is None:
        return None
    cluster_queue = str(queue["spec"]["clusterQueue"])
    quota = (with_flavors and _get(f"{root}/clusterqueues/{cluster_queue}")) or {}
    groups = quota.get("spec", {}).get("resourceGroups") or ()
    flavors = {str(flavor["name"]) for group in groups for flavor in group.get("flavors") or ()}
    labels = {flavor: _node_labels(_get(f"{root}/resourceflavors/{flavor}")) for flavor in flavors}
    found = _get(f"{root}/namespaces/{namespace}/workloads") or {}
    workloads = (each for each in found.get("items", ()) if each["spec"].get("queueName") == name)
    return Queue(name, cluster_queue, labels, tuple(workloads))


def check_queue(name: str, namespace: str) -> None:
    """Raises NotFound if the LocalQueue does not exist, as far as the user may read queues."""
    from kubernetes.client import ApiException

    try:
        root = _root()
        queues = _get(f"{root}/namespaces/{namespace}/localqueues") if root else None
    except ApiException as error:
        if error.status != 403:
            raise
        return
    if root is None:
        raise NotFound(f"queue {name} does not exist: the cluster has no Kueue; run the job without a queue")
    names = sorted(each["metadata"]["name"] for each in (queues or {}).get("items", ()))
    if name not in names:
        known = f"its queues are {', '.join(names)}" if names else "it has none"
        raise NotFound(f"queue {name} does not exist in namespace {namespace}; {known}")


def local_queues(namespace: str = "") -> list[Object]:
    """The LocalQueues of a namespace, or of all; none without Kueue. Raises ApiException without the right."""
    root = _root()
    if root is None:
        return []
    found = _get(f"{root}/namespaces/{namespace}/localqueues" if namespace else f"{root}/localqueues") or {}
    return list(found.get("items", ()))


def workload(job: Object) -> Object | None:
    """The Workload of a job; None if it has none. Raises ApiException without the right to read it."""
    root, metadata = _root(), job["metadata"]
    if root is None:
        return None
    found = _get(f"{root}/namespaces/{metadata['namespace']}/workloads?labelSelector={JOB_UID}%3D{metadata['uid']}")
    return next(iter((found or {}).get("items", ())), None)


def _root() -> str | None:
    """The path of Kueue's API; None if the cluster does not serve it."""
    versions = _get(f"/apis/{GROUP}")
    return f"/apis/{versions['preferredVersion']['groupVersion']}" if versions else None


def _get(path: str) -> Object | None:
    """The object at a path; None if there is none. Raises ApiException without the right to read it."""
    from kubernetes.client import ApiException

    client = kube.client()
    request = client.param_serialize(
        "GET", path, header_params={"Accept": "application/json"}, auth_settings=["BearerToken"]
    )
    response = client.call_api(*request, _request_timeout=30)
    text = response.read().decode(errors="replace")
    if response.status == 404:
        return None
    if response.status >= 400:
        error = ApiException(status=response.status, reason=response.reason)
        error.body = text
        raise error
    return dict(json.loads(text))


def _node_labels(flavor: Object | None) -> Mapping[str, str]:
    return (flavor or {}).get("spec", {}).get("nodeLabels") or {}


def _is_true(workload: Object, condition: str) -> bool:
    return node_pools.condition(workload, condition).get("status") == "True"


def _job(workload: Object) -> str:
    """Name of the job of a Workload; empty if another controller owns it."""
    return str((workload["metadata"].get("labels") or {}).get(LABEL_JOB, ""))


def _workers(workload: Object) -> int:
    """Pods of a Workload that need nodes of the queue: the launcher of a job needs none of its own."""
    assigned = (workload.get("status", {}).get("admission") or {}).get("podSetAssignments") or ()
    return sum(int(pod_set.get("count", 0)) for pod_set in assigned if pod_set["name"] != Role.LAUNCHER)


def _is_unplaced_worker(pod: Object) -> bool:
    is_worker = pod["metadata"]["labels"].get(LABEL_ROLE) == Role.WORKER
    return is_worker and not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
