"""The problems of a cluster. Only reads."""

import time

from localcluster.control_plane.client import Client
from localcluster.errors import ClusterError
from localcluster.network import dns, policy_engine
from localcluster.network.namespace import missing_routes
from localcluster.nodes.objects import is_node_ready
from localcluster.nodes.pools import all_nodes, component_names
from localcluster.processes import Processes
from localcluster.settings import API_PORT, Cluster

RETRY_SECONDS = 5  # on a busy machine, a healthy component may miss one question


def problems(cluster: Cluster) -> list[str]:
    """What is wrong, one sentence each; empty for a healthy cluster."""
    if not cluster.run.exists():
        return ["it is down; `up` starts it"]
    if found := missing_parts(cluster):
        return found
    deadline = time.monotonic() + RETRY_SECONDS
    while (found := failed_checks(cluster)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def missing_parts(cluster: Cluster) -> list[str]:
    """Components that do not run, routes and files that do not exist."""
    processes = Processes(cluster)
    found = [f"{name} does not run" for name in component_names(cluster) if processes.pid(name) is None]
    found += [f"no route leads to {cidr}" for cidr in missing_routes(cluster)]
    if not cluster.kubeconfig.exists():
        found.append(f"there is no {cluster.kubeconfig}")
    return found


def failed_checks(cluster: Cluster) -> list[str]:
    """What does not work although its components run."""
    found = []
    try:
        client = Client(cluster.node_address, API_PORT, cluster.pki)
        if not client.is_ready():
            return ["the API server is not ready"]
        found += [f"node {node.name} is not Ready" for node in all_nodes(cluster) if not is_node_ready(client, node)]
        if not dns.is_answering(cluster):
            found.append("the DNS does not answer")
        if not policy_engine.is_enforcing(cluster):
            found.append("no NetworkPolicy is enforced")
    except ClusterError as error:
        found.append(str(error))
    return found
