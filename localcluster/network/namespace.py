"""The network namespace of a cluster, and the routes to it.

All components run in the namespace. So ports do not conflict with those of this machine, the rules of kube-proxy and
CNI disappear with the namespace, and nothing in the cluster has a route off this machine.
"""

import ipaddress
import json
import subprocess
from pathlib import Path

from localcluster.errors import MachineError
from localcluster.machine.mounts import is_mounted
from localcluster.processes import run
from localcluster.settings import Cluster

NODE_INTERFACE = "node0"
# Of routes that are used only while those to the cluster are missing: no request must leave this machine then.
UNREACHABLE_METRIC = "4096"
NAMESPACE_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/bridge/bridge-nf-call-iptables": "1",
}


def ensure_network(cluster: Cluster) -> bool:
    """Create or correct namespace, interfaces and routes. Returns whether the namespace is new; raises MachineError."""
    check_addresses_are_free(cluster)
    for cidr in cidrs(cluster):  # first, so that no packet for them leaves this machine
        run("ip", "route", "replace", "unreachable", cidr, "metric", UNREACHABLE_METRIC)
    created = not is_mounted(cluster.netns)
    if created:
        cluster.run.mkdir(parents=True, exist_ok=True)
        cluster.netns.touch()
        run("unshare", f"--net={cluster.netns}", "true")
        run_inside(cluster, "ip", "link", "set", "lo", "up")
    if not Path(f"/sys/class/net/{cluster.interface}").exists():
        create_veth_pair(cluster)
    for name, value in NAMESPACE_SETTINGS.items():
        run_inside(cluster, "sh", "-c", f"echo {value} >/proc/sys/{name}")
    for cidr in (cluster.pod_cidr, cluster.service_cidr):
        run("ip", "route", "replace", cidr, "via", cluster.node_address, "dev", cluster.interface)
    return created


def create_veth_pair(cluster: Cluster) -> None:
    """Create the pair of interfaces between this machine and the namespace, with their addresses."""
    host, inside = cluster.interface, NODE_INTERFACE
    run("ip", "link", "add", host, "type", "veth", "peer", "name", inside, "netns", str(cluster.netns))
    run("ip", "address", "add", f"{cluster.host_address}/24", "dev", host)
    run("ip", "link", "set", host, "up")
    run_inside(cluster, "ip", "address", "add", f"{cluster.node_address}/24", "dev", inside)
    run_inside(cluster, "ip", "link", "set", inside, "up")
    run_inside(cluster, "ip", "route", "replace", "unreachable", "default")
    # The kernel looks up the route of a connection to a Service before kube-proxy's rules replace its address.
    run_inside(cluster, "ip", "route", "replace", cluster.service_cidr, "dev", inside)


def add_address(cluster: Cluster, address: str) -> None:
    """Add an address to the interface in the namespace; ARP makes it known."""
    run_inside(cluster, "ip", "address", "replace", f"{address}/32", "dev", NODE_INTERFACE)


def remove_address(cluster: Cluster, address: str) -> None:
    """Remove an address from the interface in the namespace, if it has it."""
    command = ["ip", "address", "delete", f"{address}/32", "dev", NODE_INTERFACE]
    subprocess.run(["nsenter", f"--net={cluster.netns}", "--", *command], capture_output=True, check=False)


def remove_network(cluster: Cluster) -> None:
    """Remove interfaces, routes and the mount of the namespace, which ends with its last process."""
    if Path(f"/sys/class/net/{cluster.interface}").exists():
        run("ip", "link", "delete", cluster.interface)  # its routes go with it
    while is_mounted(cluster.netns):
        run("umount", "--lazy", str(cluster.netns))
    cluster.netns.unlink(missing_ok=True)
    for cidr in cidrs(cluster):
        subprocess.run(
            ["ip", "route", "delete", "unreachable", cidr, "metric", UNREACHABLE_METRIC],
            capture_output=True,
            check=False,
        )


def cidrs(cluster: Cluster) -> tuple[str, ...]:
    """The address ranges of pods, nodes and Services."""
    return cluster.pod_cidr, cluster.node_cidr, cluster.service_cidr


def missing_routes(cluster: Cluster) -> list[str]:
    """The address ranges of the cluster without a route to it."""
    present = {route.get("dst"): route.get("dev") for route in routes() if route.get("type") is None}
    return [cidr for cidr in cidrs(cluster) if present.get(cidr) != cluster.interface]


def check_addresses_are_free(cluster: Cluster) -> None:
    """Raise MachineError if another interface of this machine has a route for addresses of the cluster."""
    for route in routes():
        device, destination = route.get("dev"), route.get("dst", "default")
        if destination == "default" or device == cluster.interface or route.get("metric") == int(UNREACHABLE_METRIC):
            continue
        network = ipaddress.ip_network(destination)
        for cidr in cidrs(cluster):
            if network.overlaps(ipaddress.ip_network(cidr)):
                raise MachineError(
                    f"this machine already routes {destination} to {device}, "
                    f"which the cluster {cluster.name!r} needs as {cidr}"
                )


def routes() -> list[dict[str, str | int]]:
    """The IPv4 routes of this machine, as `ip -json route` prints them."""
    listed = subprocess.run(["ip", "-json", "-4", "route"], capture_output=True, text=True, check=True).stdout
    answer: list[dict[str, str | int]] = json.loads(listed or "[]")
    return answer


def run_inside(cluster: Cluster, *command: str) -> None:
    """Run a command in the network namespace. Raises ClusterError if it fails."""
    run("nsenter", f"--net={cluster.netns}", "--", *command)
