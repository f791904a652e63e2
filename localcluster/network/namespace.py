"""The node's own network namespace, and the routes that lead to it.

With all components in a namespace there are no port clashes, kube-proxy's and CNI's rules vanish with it,
and nothing in the cluster has a way off this machine.
"""

import ipaddress
import json
import subprocess
from pathlib import Path

from localcluster.errors import ClusterError, MachineUnfit
from localcluster.settings import Cluster

NODE_INTERFACE = "node0"
# Only used while the cluster's own routes are missing; a request must not leave the machine then.
LAST_RESORT_METRIC = "4096"
NAMESPACE_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/bridge/bridge-nf-call-iptables": "1",
}


def ensure_network(cluster: Cluster) -> bool:
    """Namespace, interfaces and routes as they must be; whether the namespace is new."""
    check_addresses_are_free(cluster)
    for cidr in addresses(cluster):  # before anything else, so that no packet for them can leave the machine
        run("ip", "route", "replace", "unreachable", cidr, "metric", LAST_RESORT_METRIC)
    fresh = not is_mounted(cluster.netns)
    if fresh:
        cluster.run.mkdir(parents=True, exist_ok=True)
        cluster.netns.touch()
        run("unshare", f"--net={cluster.netns}", "true")
        run_inside(cluster, "ip", "link", "set", "lo", "up")
    if not Path(f"/sys/class/net/{cluster.interface}").exists():
        make_link(cluster)
    for name, value in NAMESPACE_SETTINGS.items():
        run_inside(cluster, "sh", "-c", f"echo {value} >/proc/sys/{name}")
    for cidr in (cluster.pod_cidr, cluster.service_cidr):
        run("ip", "route", "replace", cidr, "via", cluster.node_address, "dev", cluster.interface)
    return fresh


def make_link(cluster: Cluster) -> None:
    """A pair of interfaces between this machine and the node."""
    host, inside = cluster.interface, NODE_INTERFACE
    run("ip", "link", "add", host, "type", "veth", "peer", "name", inside, "netns", str(cluster.netns))
    run("ip", "address", "add", f"{cluster.host_address}/24", "dev", host)
    run("ip", "link", "set", host, "up")
    run_inside(cluster, "ip", "address", "add", f"{cluster.node_address}/24", "dev", inside)
    run_inside(cluster, "ip", "link", "set", inside, "up")
    run_inside(cluster, "ip", "route", "replace", "unreachable", "default")
    # A local socket to a service must pass the routing lookup before its address is rewritten.
    run_inside(cluster, "ip", "route", "replace", cluster.service_cidr, "dev", inside)


def add_address(cluster: Cluster, address: str) -> None:
    """One more address of the node's interface; the hosts of its network find it by themselves."""
    run_inside(cluster, "ip", "address", "replace", f"{address}/32", "dev", NODE_INTERFACE)


def remove_address(cluster: Cluster, address: str) -> None:
    command = ["ip", "address", "delete", f"{address}/32", "dev", NODE_INTERFACE]
    subprocess.run(["nsenter", f"--net={cluster.netns}", "--", *command], capture_output=True, check=False)


def remove_network(cluster: Cluster) -> None:
    """Undo `ensure_network`; the namespace itself ends with its last process."""
    if Path(f"/sys/class/net/{cluster.interface}").exists():
        run("ip", "link", "delete", cluster.interface)  # its routes go with it
    while is_mounted(cluster.netns):
        run("umount", "--lazy", str(cluster.netns))
    cluster.netns.unlink(missing_ok=True)
    for cidr in addresses(cluster):
        subprocess.run(
            ["ip", "route", "delete", "unreachable", cidr, "metric", LAST_RESORT_METRIC],
            capture_output=True,
            check=False,
        )


def addresses(cluster: Cluster) -> tuple[str, ...]:
    return cluster.pod_cidr, cluster.node_cidr, cluster.service_cidr


def missing_routes(cluster: Cluster) -> list[str]:
    """Address ranges of the cluster that do not lead to it."""
    present = {route.get("dst"): route.get("dev") for route in routes() if route.get("type") is None}
    return [cidr for cidr in addresses(cluster) if present.get(cidr) != cluster.interface]


def check_addresses_are_free(cluster: Cluster) -> None:
    """Raise if another interface of this machine uses the cluster's addresses."""
    for route in routes():
        device, destination = route.get("dev"), route.get("dst", "default")
        if destination == "default" or device == cluster.interface or route.get("metric") == int(LAST_RESORT_METRIC):
            continue
        network = ipaddress.ip_network(destination)
        for cidr in addresses(cluster):
            if network.overlaps(ipaddress.ip_network(cidr)):
                raise MachineUnfit(
                    f"this machine already routes {destination} to {device}, "
                    f"which the cluster {cluster.name!r} needs as {cidr}"
                )


def routes() -> list[dict[str, str | int]]:
    listed = subprocess.run(["ip", "-json", "-4", "route"], capture_output=True, text=True, check=True).stdout
    answer: list[dict[str, str | int]] = json.loads(listed or "[]")
    return answer


def is_mounted(path: Path) -> bool:
    return path in mount_points()


def mount_points(under: Path | None = None) -> list[Path]:
    """All mount points, or those at and below `under`, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines]
    return sorted((p for p in points if under is None or p.is_relative_to(under)), reverse=True)


def run_inside(cluster: Cluster, *command: str) -> None:
    run("nsenter", f"--net={cluster.netns}", "--", *command)


def run(*command: str) -> str:
    """Standard output of `command`, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` ended with: {(done.stderr or done.stdout).strip()}")
    return done.stdout
