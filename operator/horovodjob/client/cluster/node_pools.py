"""Node pools in the format of Batch AI's clusters: the state of each node. Pure: same arguments, same result."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from horovodjob.api.constants import GPU_RESOURCE, LABEL_JOB, POOL_LABELS, SPOT_LABELS

Object = dict[str, Any]
VM_SIZE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# The name of the pool of all GPU nodes if no node has a label of a pool.
ALL_GPU_NODES = "gpu"
GPU_LABELS = {
    "kubernetes.azure.com/accelerator": "nvidia",
    "accelerator": "nvidia",
    "nvidia.com/gpu.present": "true",
    "karpenter.azure.com/sku-gpu-manufacturer": "nvidia",
}
GPU_TAINTS = ("sku=gpu", "nvidia.com/gpu")
# The sizes of the series with GPUs; those with MI300X, V710 and the fourth version of NV have GPUs of AMD.
GPU_VM_SIZE = re.compile(r"Standard_N[CDV](?!\S*(MI\d+X|_V710_|as_v4))", re.IGNORECASE)
# Taints of nodes that are about to be removed: cluster autoscaler, Karpenter, a VM that is shut down.
LEAVING_TAINTS = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
)
# Conditions of the node problem detector on AKS, which reports faults and never repairs them. The documentation of AKS
# and its nodes spell that of Xid errors differently.
FAULTS = (
    "GPUMissing",
    "XIDErrors",
    "GPUXIDErrors",
    "NVLinkStatusInactive",
    "IBLinkFlapping",
    "GPUClockThrottling",
    "UnhealthyNvidiaDevicePlugin",
    "UnhealthyNvidiaDCGMServices",
    "ReadonlyFilesystem",
    "KernelDeadlock",
)
# The cluster autoscaler of AKS gives up on a node that is not Ready by then (max-node-provision-time).
PROVISION_TIME = timedelta(minutes=15)


class NodeState(StrEnum):
    """Batch AI's states of a node."""

    IDLE = "idle"
    LEAVING = "leaving"
    PREPARING = "preparing"
    RUNNING = "running"
    UNUSABLE = "unusable"


def gpu_count(resources: Mapping[str, Any]) -> int:
    """The GPUs among resources of a pod or a node; a quantity such as 1k is a number too."""
    from kubernetes.utils.quantity import parse_quantity

    return int(parse_quantity(resources.get(GPU_RESOURCE, 0)))


def pool_name(node: Object) -> str | None:
    """The pool that a node belongs to by its labels."""
    labels = node["metadata"].get("labels") or {}
    return next((labels[label] for label in POOL_LABELS if label in labels), None)


def pools(nodes: Iterable[Object]) -> dict[str, list[Object]]:
    """Nodes by pool; without any label of a pool, all GPU nodes are one pool."""
    found: dict[str, list[Object]] = {}
    unlabelled = []
    for node in nodes:
        name = pool_name(node)
        if name is not None:
            found.setdefault(name, []).append(node)
        elif is_gpu_node(node):
            unlabelled.append(node)
    return dict(sorted(found.items())) if found or not unlabelled else {ALL_GPU_NODES: unlabelled}


def is_gpu_node(node: Object) -> bool:
    """Whether a node has GPUs, or will have them once its device plugin runs."""
    labels = node["metadata"].get("labels") or {}
    return (
        gpus(node, "capacity") > 0
        or any(labels.get(key) == value for key, value in GPU_LABELS.items())
        or bool(GPU_VM_SIZE.match(vm_size(node) or ""))
        or any(
            taint["key"] in GPU_TAINTS or f"{taint['key']}={taint.get('value')}" in GPU_TAINTS for taint in taints(node)
        )
    )


def gpus(node: Object, kind: str = "allocatable") -> int:
    """GPUs of a node, by `capacity` or `allocatable`."""
    return gpu_count(node.get("status", {}).get(kind) or {})


def vm_size(node: Object) -> str | None:
    """The size of the virtual machine."""
    labels = node["metadata"].get("labels") or {}
    return next((labels[label] for label in VM_SIZE_LABELS if label in labels), None)


def is_spot(node: Object) -> bool:
    """Whether the platform may evict the node."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(label) == "spot" for label in SPOT_LABELS)


def taints(node: Object) -> list[Object]:
    """The node's taints."""
    return node["spec"].get("taints") or []


def node_state(node: Object, pods: Sequence[Object], *, now: datetime) -> NodeState:
    """The state of a node with these pods of jobs."""
    if is_leaving(node):
        return NodeState.LEAVING
    new = age(node["metadata"].get("creationTimestamp"), now) < PROVISION_TIME
    if node_faults(node):
        return NodeState.UNUSABLE
    ready = condition(node, "Ready")
    if ready.get("status") != "True":
        since = age(ready.get("lastTransitionTime"), now)
        return NodeState.PREPARING if new and since < PROVISION_TIME else NodeState.UNUSABLE
    if is_gpu_node(node) and not gpus(node):
        return NodeState.PREPARING if new else NodeState.UNUSABLE
    live = [pod for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
    if any(is_running(pod) for pod in live):
        return NodeState.RUNNING
    return NodeState.PREPARING if live else NodeState.IDLE


def is_leaving(node: Object) -> bool:
    """Whether the node is cordoned or about to be deleted."""
    cordoned = bool(node["spec"].get("unschedulable"))
    return (
        cordoned
        or "deletionTimestamp" in node["metadata"]
        or any(taint["key"] in LEAVING_TAINTS for taint in taints(node))
    )


def is_running(pod: Object) -> bool:
    """Whether the pod runs and its preparation has ended: a pod of a job is Ready only then."""
    ready: str = condition(pod, "Ready").get("status", "True")
    return pod["status"].get("phase") == "Running" and ready == "True"


def node_faults(node: Object) -> list[Object]:
    """The conditions that make a node unusable."""
    return [each for each in conditions(node) if each["type"] in FAULTS and each["status"] == "True"]


def conditions(thing: Object) -> list[Object]:
    """Conditions of a node or pod."""
    return thing.get("status", {}).get("conditions") or []


def condition(thing: Object, kind: str) -> Object:
    """The condition of this type; empty if there is none."""
    return next((each for each in conditions(thing) if each["type"] == kind), {})


def age(timestamp: str | None, now: datetime) -> timedelta:
    """Time since then; zero if it is unknown."""
    return now - datetime.fromisoformat(timestamp) if timestamp else timedelta()


def node_records(nodes: Iterable[Object], pods: Iterable[Object], *, now: datetime) -> list[Object]:
    """The records of `cluster node list`."""
    by_node: dict[str, list[Object]] = {}
    for pod in pods:
        by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    return [node_record(node, by_node.get(node["metadata"]["name"], []), now) for node in nodes]


def node_record(node: Object, pods: Sequence[Object], now: datetime) -> Object:
    """A node with the field names of Batch AI; `jobs` as namespace/name."""
    live = [pod["metadata"] for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
    addresses = node["status"].get("addresses") or []
    return {
        "nodeId": node["metadata"]["name"],
        "ipAddress": next((each["address"] for each in addresses if each["type"] == "InternalIP"), None),
        "state": node_state(node, pods, now=now).value,
        "vmSize": vm_size(node),
        "gpus": gpus(node),
        "jobs": sorted({f"{pod['namespace']}/{pod['labels'][LABEL_JOB]}" for pod in live}),
        "errors": [{"code": each["type"], "message": each.get("message", "")} for each in node_faults(node)],
    }


def state_counts(nodes: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Batch AI's `nodeStateCounts` for node records."""
    counts = Counter(node["state"] for node in nodes)
    return {f"{state}NodeCount": counts[state] for state in NodeState}
