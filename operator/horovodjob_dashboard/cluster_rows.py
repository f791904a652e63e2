"""What the page of the cluster shows: pools of nodes with their GPUs, and queues with the jobs that wait.

Pure: objects as the API server returns them in, plain records out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horovodjob.api.constants import LABEL_JOB, Phase
from horovodjob.client.cluster import node_pools
from horovodjob_dashboard.job_rows import JobRow

Object = Mapping[str, Any]
WITHOUT_POOL = "Nodes without a pool"
ENDED = ("Succeeded", "Failed")
# Phases of a job that waits for quota or for nodes.
WAITING = (Phase.QUEUED, Phase.RESTARTING)
TAKES_PODS = (node_pools.NodeState.IDLE, node_pools.NodeState.RUNNING, node_pools.NodeState.PREPARING)


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod that holds resources of a node."""

    node: str
    gpus: int
    manifest: dict[str, Any] | None
    """The pod, if it is one of a job."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a pool."""

    name: str
    state: str
    gpus: int
    used: int
    """GPUs that pods on the node have requested."""
    jobs: list[str]
    """Jobs with pods on the node, as namespace/name."""
    problems: list[str]


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool of nodes."""

    name: str
    vm_size: str
    nodes: list[NodeRow]

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def used(self) -> int:
        """GPUs that pods have requested."""
        return sum(node.used for node in self.nodes)

    @property
    def free(self) -> int:
        """GPUs that a new pod can have: those of nodes that take pods."""
        return sum(max(node.gpus - node.used, 0) for node in self.nodes if node.state in TAKES_PODS)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue of Kueue, or the jobs without one."""

    namespace: str
    name: str
    cluster_queue: str
    problem: str
    """Why Kueue admits nothing from the queue."""
    waiting: list[JobRow]
    """In the order of their positions."""
    active: list[JobRow]


def pod_on_node(pod: Object) -> PodOnNode | None:
    """The pod, if it holds resources of a node."""
    node = pod["spec"].get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in ENDED:
        return None
    requests = ((each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"])
    gpus = sum(node_pools.gpu_count(each) for each in requests)
    is_of_a_job = LABEL_JOB in (pod["metadata"].get("labels") or {})
    return PodOnNode(node, gpus, dict(pod) if is_of_a_job else None)


def pool_rows(nodes: Iterable[dict[str, Any]], pods: Iterable[PodOnNode], now: datetime) -> list[PoolRow]:
    """The pools of the cluster, and the nodes that are in none of them."""
    nodes, pods = list(nodes), list(pods)
    used: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        used[pod.node] += pod.gpus
    of_jobs = [pod.manifest for pod in pods if pod.manifest]
    by_name = {each["metadata"]["name"]: each for each in nodes}
    pools = node_pools.pools(nodes)
    in_pools = {node["metadata"]["name"] for found in pools.values() for node in found}
    if others := [node for name, node in by_name.items() if name not in in_pools]:
        pools[WITHOUT_POOL] = others
    return [
        PoolRow(
            name,
            ", ".join(sorted({size for node in found if (size := node_pools.vm_size(node))})),
            [_node_row(each, used) for each in node_pools.node_records(found, of_jobs, now=now)],
        )
        for name, found in pools.items()
    ]


def _node_row(record: Object, used: Mapping[str, int]) -> NodeRow:
    return NodeRow(
        name=record["nodeId"],
        state=record["state"],
        gpus=record["gpus"],
        used=used.get(record["nodeId"], 0),
        jobs=record["jobs"],
        problems=[f"{error['code']}: {error['message']}" for error in record["errors"]],
    )


def queue_rows(jobs: Iterable[JobRow], local_queues: Iterable[Object]) -> list[QueueRow]:
    """The queues with jobs or LocalQueues of Kueue; last, the jobs without a queue that wait for nodes."""
    found: defaultdict[tuple[str, str], list[JobRow]] = defaultdict(list)
    for job in jobs:
        is_idle = job.is_finished or job.phase == Phase.SUSPENDED
        if not is_idle and (job.queue or job.phase in WAITING):
            found[(job.namespace, job.queue) if job.queue else ("", "")].append(job)
    known = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in local_queues}
    keys = sorted({*found, *known}, key=lambda key: (not key[1], key))
    return [_queue_row(key, found.get(key, []), known.get(key, {})) for key in keys]


def _queue_row(key: tuple[str, str], jobs: list[JobRow], local_queue: Object) -> QueueRow:
    active = next((each for each in node_pools.conditions(dict(local_queue)) if each["type"] == "Active"), {})
    waiting = [job for job in jobs if job.phase in WAITING]
    return QueueRow(
        namespace=key[0],
        name=key[1],
        cluster_queue=(local_queue.get("spec") or {}).get("clusterQueue", ""),
        problem=active.get("message", "") if active.get("status") == "False" else "",
        waiting=sorted(waiting, key=lambda job: (job.position is None, job.position or 0, job.created, job.name)),
        active=[job for job in jobs if job.phase not in WAITING],
    )
