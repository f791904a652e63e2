"""What keeps a cluster from being healthy. Reads only."""

import time
from datetime import datetime

from localcluster.control_plane.client import Client
from localcluster.errors import ClusterError
from localcluster.network import dns, policy_engine
from localcluster.network.namespace import missing_routes
from localcluster.nodes.pools import components, node_path, nodes
from localcluster.processes import Processes
from localcluster.settings import API_PORT, Cluster, Node

PATIENCE_SECONDS = 5  # on a busy machine a healthy cluster may miss one question


def problems(cluster: Cluster) -> list[str]:
    """What is wrong, one sentence each; nothing if the cluster is healthy."""
    if not cluster.run.exists():
        return ["it is down; `up` starts it"]
    if found := missing_parts(cluster):
        return found
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := unanswered_questions(cluster)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def missing_parts(cluster: Cluster) -> list[str]:
    """Components, routes and files that are not there."""
    processes = Processes(cluster)
    found = [f"{name} does not run" for name in components(cluster) if processes.pid(name) is None]
    found += [f"no route leads to {cidr}" for cidr in missing_routes(cluster)]
    if not cluster.kubeconfig.exists():
        found.append(f"there is no {cluster.kubeconfig}")
    return found


def unanswered_questions(cluster: Cluster) -> list[str]:
    """Components that run and yet do not do what they are for."""
    found = []
    try:
        client = Client(cluster.node_address, API_PORT, cluster.pki)
        if not client.is_ready():
            return ["the API server is not ready"]
        found += [f"node {node.name} is not Ready" for node in nodes(cluster) if not is_node_ready(client, node)]
        if not dns.answers(cluster):
            found.append("the DNS does not answer")
        if not policy_engine.is_enforcing(cluster):
            found.append("no NetworkPolicy is enforced")
    except ClusterError as error:
        found.append(str(error))
    return found


def is_node_ready(client: Client, node: Node, since: datetime | None = None) -> bool:
    """Whether the node is schedulable, and its kubelet has reported so after `since`."""
    found = client.get(node_path(node))
    own = [taint["key"] for taint in node.taint_objects]
    if found is None or any(taint["key"] not in own for taint in found["spec"].get("taints", [])):
        return False
    ready = [c for c in found.get("status", {}).get("conditions", []) if c["type"] == "Ready"]
    return any(
        c["status"] == "True" and (since is None or datetime.fromisoformat(c["lastHeartbeatTime"]) >= since)
        for c in ready
    )
