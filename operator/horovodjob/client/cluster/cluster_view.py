"""Data of `hvj cluster`: nodes and pods of jobs from Kubernetes, and AKS node pools from Azure."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from horovodjob.api.constants import LABEL_JOB
from horovodjob.client.cluster import aks, kube, node_pools, queues
from horovodjob.client.errors import ClientError, NotFound
from horovodjob.client.messages import message

Object = dict[str, Any]
ADVICE = (
    "ask the cluster's administrator for the ClusterRole horovodjob-operator-nodes of the operator's chart, or "
    "horovodjob-nodes of its manifests"
)


@dataclass(frozen=True, slots=True)
class AzureView:
    """The resource group of the AKS cluster and its agent pools by name; empty for other clusters."""

    group: str | None = None
    pools: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """Nodes, the pods of jobs that the user may read, and Azure's view of the pools."""

    nodes: list[Object]
    pods: list[Object]
    namespace: str
    azure: AzureView
    now: datetime
    sees_nodes: bool = True
    """Whether the user may list nodes; otherwise, what only nodes report is None."""

    def record(self, name: str, nodes: list[Object]) -> Object:
        """A pool in the format of `az batchai cluster show`, from its nodes and its Azure resource."""
        records = node_pools.node_records(nodes, self.pods, now=self.now)
        pool = self.azure.pools.get(name)
        first = nodes[0] if nodes else None
        spot = pool.scale_set_priority == "Spot" if pool else first is not None and node_pools.is_spot(first)
        record = {
            "id": pool.id if pool else None,
            "name": name,
            "resourceGroup": self.azure.group,
            "workspace": self.namespace,
            "vmSize": pool.vm_size if pool else first and node_pools.vm_size(first),
            "vmPriority": "lowpriority" if spot else "dedicated",
            "allocationState": allocation_state(records, pool),
            "provisioningState": pool.provisioning_state.lower() if pool else None,
            "currentNodeCount": len(nodes),
            "nodeStateCounts": node_pools.state_counts(records),
            "scaleSettings": scale_settings(pool) if pool else None,
            "errors": [{"node": each["nodeId"], **error} for each in records for error in each["errors"]],
        }
        return record if self.sees_nodes else record | _known_without_nodes(pool)

    def named_record(self, name: str, selector: str | None = None) -> Object:
        """The record of one pool, or of all nodes if a selector chose them. Raises NotFound."""
        nodes = self.nodes if selector else node_pools.pools(self.nodes).get(name, [])
        if not nodes and name not in self.azure.pools and (self.sees_nodes or self.azure.pools):
            raise self.not_found(name)
        return self.record(name, nodes)

    def pool_or_queue_record(self, name: str, selector: str | None) -> Object:
        """The record of a pool, or else of a queue of Kueue in the namespace. Raises NotFound, ApiException."""
        is_pool = name in node_pools.pools(self.nodes).keys() | self.azure.pools.keys()
        queue = None if is_pool or selector else self._queue(name)
        return self.queue_record(queue) if queue else self.named_record(name, selector)

    def _queue(self, name: str) -> queues.Queue | None:
        from kubernetes.client import ApiException

        try:
            return queues.find(name, self.namespace, with_flavors=self.sees_nodes)
        except ApiException as error:
            if self.sees_nodes or error.status != 403:
                raise
            return None  # The name may be that of a pool, about which a user with few rights may ask.

    def queue_record(self, queue: queues.Queue) -> Object:
        """A queue in the format of a pool: the nodes of its flavors, and those on their way for its jobs."""
        record = self.record(queue.name, queue.nodes(self.nodes))
        place = {
            "name": queue.name,
            "clusterQueue": queue.cluster_queue,
            "flavors": sorted(queue.flavors),
            "pools": queue.pools,
            "waitingJobs": queue.jobs(),
            "admittedJobs": queue.jobs("Admitted"),
        }
        if not self.sees_nodes:
            return record | {"queue": place | {"flavors": None, "pools": None}}
        pools = [self.azure.pools[name] for name in queue.pools if name in self.azure.pools]
        by_pool = node_pools.pools(self.nodes)
        counts = record["nodeStateCounts"]
        if pools:  # Their sizes count nodes that are not registered yet.
            coming = sum(max((pool.count or 0) - len(by_pool.get(pool.name, [])), 0) for pool in pools)
        else:
            coming = max(queue.awaited_nodes(self.pods) - counts["preparingNodeCount"], 0)
        counts["preparingNodeCount"] += coming
        if len(pools) == 1:
            record |= {"vmSize": pools[0].vm_size, "scaleSettings": scale_settings(pools[0])}
        is_resizing = counts["preparingNodeCount"] or counts["leavingNodeCount"]
        return record | {"allocationState": "resizing" if is_resizing else "steady", "queue": place}

    def node_records(self, name: str, selector: str | None) -> list[Object]:
        """The nodes of a pool or a selector; without the right to list nodes, those with pods of the namespace."""
        if not self.sees_nodes:
            unknown = {"state": None, "gpus": None}
            nodes = [_node_of(pod) for pod in self.pods if pod["spec"].get("nodeName")]
            distinct = {node["metadata"]["name"]: node for node in nodes}.values()
            return [each | unknown for each in node_pools.node_records(distinct, self.pods, now=self.now)]
        nodes = self.nodes if selector else node_pools.pools(self.nodes).get(name, [])
        if not nodes:
            raise self.not_found(name)
        return node_pools.node_records(nodes, self.pods, now=self.now)

    def not_found(self, name: str) -> NotFound:
        """An error with the existing pools and the alternative option."""
        names = ", ".join(sorted(node_pools.pools(self.nodes).keys() | self.azure.pools.keys())) or "none"
        return NotFound(f"no pool is named {name} (pools: {names}); select nodes with `selector=`")


def _known_without_nodes(pool: Any | None) -> Object:
    """What the record of a pool has instead of the data of its nodes."""
    if pool is None:
        return dict.fromkeys(("vmPriority", "allocationState", "currentNodeCount", "nodeStateCounts"))
    steady = {"allocationState": "steady"} if pool.provisioning_state == "Succeeded" else {}
    return steady | {"currentNodeCount": pool.count, "nodeStateCounts": None}


def _node_of(pod: Object) -> Object:
    """What a pod reports about its node."""
    addresses = [{"type": "InternalIP", "address": pod["status"].get("hostIP")}]
    return {"metadata": {"name": pod["spec"]["nodeName"]}, "spec": {}, "status": {"addresses": addresses}}


def allocation_state(nodes: list[Object], pool: Any | None) -> str:
    """Batch AI's `steady` or `resizing`; `deleting` as its command line showed it."""
    if pool is None:
        return "resizing" if any(each["state"] in ("preparing", "leaving") for each in nodes) else "steady"
    if pool.provisioning_state == "Deleting":
        return "deleting"
    settled = pool.provisioning_state in ("Succeeded", "Failed", "Canceled")
    return "steady" if settled and (pool.count or 0) == len(nodes) else "resizing"


def scale_settings(pool: Any) -> Object:
    """The scale settings of the pool in Batch AI's format."""
    if not pool.enable_auto_scaling:
        return {"manual": {"targetNodeCount": pool.count}, "autoScale": None}
    return {"manual": None, "autoScale": {"minimumNodeCount": pool.min_count, "maximumNodeCount": pool.max_count}}


def current_view(namespace: str | None, nodes: list[Object] | None, azure: AzureView | None = None) -> View:
    """The view of these nodes now; None: the user may not list them."""
    namespace = kube.namespace(namespace)
    now = datetime.now(UTC)  # noqa: TID251 (a command is one process)
    azure = azure or AzureView()
    if nodes is None:
        return View([], pods_of_namespace(namespace), namespace, azure, now, sees_nodes=False)
    return View(nodes, pods_of_jobs(namespace), namespace, azure, now)


def read_nodes(selector: str | None = None) -> list[Object]:
    """The nodes of the cluster."""
    return items(kube.core().list_node(label_selector=selector or "", _preload_content=False))


def readable_nodes(selector: str | None = None, *, warns: bool = True) -> list[Object] | None:
    """The nodes of the cluster; None, with a warning, for a user who may not list them."""
    from kubernetes.client import ApiException

    try:
        return read_nodes(selector)
    except ApiException as error:
        if error.status != 403:
            raise
    if warns:
        warn(f"you may not list nodes, so their states are unknown; {ADVICE}")
    return None


def azure_view(cluster: aks.ManagedCluster) -> AzureView:
    """Azure's view of an AKS cluster."""
    return AzureView(cluster.group, {pool.name: pool for pool in cluster.pools()})


def azure_view_if_known(place: aks.ClusterReference | None) -> AzureView:
    """Azure's view, or an empty one with a warning: most of the data is from Kubernetes."""
    if place is None:
        return AzureView()
    try:
        return azure_view(aks.ManagedCluster(place))
    except ClientError as error:
        warn(f"without Azure's view of the pools: {error}")
        return AzureView()


def pods_of_jobs(namespace: str) -> list[Object]:
    """The pods of all jobs, or only those in the namespace if the user may not read others."""
    from kubernetes.client import ApiException

    try:
        return items(kube.core().list_pod_for_all_namespaces(label_selector=LABEL_JOB, _preload_content=False))
    except ApiException as error:
        if error.status != 403:
            raise
    warn(f"you may read pods in namespace {namespace} only: nodes with jobs of other namespaces appear as idle")
    return pods_of_namespace(namespace)


def pods_of_namespace(namespace: str) -> list[Object]:
    """The pods of the jobs of a namespace."""
    return items(kube.core().list_namespaced_pod(namespace, label_selector=LABEL_JOB, _preload_content=False))


def items(response: Any) -> list[Object]:
    """The objects of a raw list response: the client's models are slow with many nodes."""
    found: list[Object] = json.loads(response.data)["items"]
    return found


def warn(sentence: str) -> None:
    """Write a warning to standard error."""
    message(f"warning: {sentence}")
