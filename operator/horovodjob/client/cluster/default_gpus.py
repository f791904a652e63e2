"""The GPUs of each worker of a job for which the user names no number."""

from collections.abc import Sequence
from typing import Any

from horovodjob.client.cluster import kube, node_pools

Object = dict[str, Any]
# One page: in a larger cluster, the default is 1 GPU, whatever its nodes are.
PAGE = 500
# The schemes of provider IDs of nodes that no autoscaler adds; those of clouds have others, such as azure and aws.
OWN_MACHINES = ("", "kind", "k3s", "k0s", "rke2", "minikube", "microk8s")
NONE_HERE = "no node of the cluster has a GPU, so the workers use none; `gpus=1` waits for a node that has one"
UNKNOWN = "each worker requests 1 GPU; `gpus=0` runs the job without"
NONE_NOW = "no node has a GPU now, and each worker waits for one; `gpus=0` runs the job without"


def default_gpus(*, is_placed: bool) -> tuple[int, str]:
    """The GPUs of a worker, and a sentence for the user if no node has GPUs.

    `is_placed`: the job names a pool or a queue, which can get nodes that do not exist yet.
    """
    nodes = _nodes()
    if nodes is None:
        return 1, UNKNOWN
    if not nodes or any(map(node_pools.is_gpu_node, nodes)):
        return 1, ""
    return (1, NONE_NOW) if is_placed or not are_own_machines(nodes) else (0, NONE_HERE)


def are_own_machines(nodes: Sequence[Object]) -> bool:
    """Whether no cloud has made the nodes, as in kind, minikube or a cluster of one's own: nothing adds other ones."""
    return bool(nodes) and all(each["spec"].get("providerID", "").partition(":")[0] in OWN_MACHINES for each in nodes)


def _nodes() -> list[Object] | None:
    """The nodes; None if the user may not read them, and none if there are more than a page."""
    from kubernetes.client import ApiException

    try:
        found = kube.plain(kube.core().list_node(limit=PAGE))
    except ApiException as error:
        if error.status not in (401, 403):
            raise
        return None
    return [] if found["metadata"].get("continue") else list(found["items"])
