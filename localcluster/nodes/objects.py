"""Nodes as objects of the API: labels, taints, conditions, GPUs and pods."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from localcluster.control_plane.client import Client
from localcluster.settings import Node

GPU = "nvidia.com/gpu"


def node_path(node: Node) -> str:
    """The path of the Node object in the API."""
    return f"/api/v1/nodes/{node.name}"


def node_object(node: Node) -> dict[str, Any]:
    """The Node object that exists before the kubelet starts, because a kubelet may not set every label itself."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(label.split("=", 1) for label in node.labels)},
        "spec": {"taints": list(node.taint_objects)},
    }


def is_node_ready(client: Client, node: Node, since: datetime | None = None) -> bool:
    """Whether the node is schedulable and Ready, with a heartbeat that is not older than `since`."""
    found = client.get(node_path(node))
    configured = [taint["key"] for taint in node.taint_objects]
    if found is None or any(taint["key"] not in configured for taint in found["spec"].get("taints", [])):
        return False
    ready = [c for c in found.get("status", {}).get("conditions", []) if c["type"] == "Ready"]
    return any(
        c["status"] == "True" and (since is None or datetime.fromisoformat(c["lastHeartbeatTime"]) >= since)
        for c in ready
    )


def advertise_gpus(client: Client, node: Node, count: int) -> None:
    """Let a node advertise `count` GPUs; 0 removes them. The kubelet keeps resources that it does not know."""
    amount = str(count) if count else None
    client.merge(f"{node_path(node)}/status", {"status": {"capacity": {GPU: amount}, "allocatable": {GPU: amount}}})


def pod_paths(client: Client, nodes: Sequence[Node]) -> Iterator[str]:
    """The path of each pod that is assigned to one of the nodes."""
    for node in nodes:
        found = client.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}") or {"items": []}
        for pod in found["items"]:
            yield f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
