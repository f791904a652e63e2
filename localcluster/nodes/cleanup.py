"""Removal of what kubelet, containerd and CNI leave on this machine."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.machine.cgroups import remove_cgroup
from localcluster.machine.mounts import mount_points, unmount_all
from localcluster.settings import Cluster, Node

CNI_RESULTS = Path("/var/lib/cni/results")
CONTAINER_LOGS = Path("/var/log/containers")
SHIM_SOCKETS = Path("/run/containerd")


def remove_node(node: Node) -> None:
    """Remove all files of an additional node whose processes have ended. Raises ClusterError if it has mounts left."""
    unmount_all(node.state, node.run)
    check_unmounted(node.state, node.run)
    remove_cgroup(node.cgroup)
    remove_log_links(node.pod_logs)
    remove_shim_sockets(node.run)
    for path in network_attachments(node):
        path.unlink()
    sandboxes = sandbox_ids(node)
    for reservation in (node.cluster.run / "cni-addresses" / node.cluster.interface).glob("*.*.*.*"):
        if reservation.read_text().split()[0] in sandboxes:
            reservation.unlink()
    for path in (node.state, node.run, node.pod_logs):
        shutil.rmtree(path, ignore_errors=True)
    for parent in (node.state.parent, node.run.parent):
        with contextlib.suppress(OSError):  # it is not empty while there are other nodes
            parent.rmdir()


def remove_shared_entries(cluster: Cluster) -> None:
    """Remove the entries of a cluster from directories that other container runtimes use as well."""
    for result in CNI_RESULTS.glob(f"{cluster.interface}-*"):
        result.unlink()
    remove_log_links(cluster.log)
    for directory in (cluster.run, *cluster.run.glob("nodes/*")):
        remove_shim_sockets(directory)


def check_unmounted(*directories: Path) -> None:
    """Raise ClusterError if something is mounted at or below a directory: its files must not be removed."""
    if left := [point for directory in directories for point in mount_points(directory)]:
        raise ClusterError(f"{left[0]} is still mounted; nothing below it was removed")


def sandbox_ids(node: Node) -> list[str]:
    """The ids of the pod sandboxes of a node, which containerd and CNI use."""
    return [path.name for path in (node.run / "containerd").glob("io.containerd.grpc.v1.cri/sandboxes/*")]


def network_attachments(node: Node) -> list[Path]:
    """The files that CNI keeps for the pods of a node while they are on the network."""
    network = node.cluster.interface
    return [path for sandbox in sandbox_ids(node) for path in CNI_RESULTS.glob(f"{network}-{sandbox}-*")]


def remove_log_links(logs: Path) -> None:
    """Remove the links that kubelets have created in /var/log/containers to logs below a directory."""
    for link in CONTAINER_LOGS.glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(logs):
            link.unlink()


def remove_shim_sockets(run: Path) -> None:
    """Remove the sockets of shims that have ended, for the containerd with this run directory."""
    for bundle in (run / "containerd").glob("io.containerd.runtime.v2.task/*/*"):
        for socket in shim_sockets(bundle):
            socket.unlink(missing_ok=True)


def shim_sockets(bundle: Path) -> Iterator[Path]:
    """The sockets of the shim of a container, which is named in the container's bundle directory."""
    with contextlib.suppress(OSError, ValueError):
        address = json.loads((bundle / "bootstrap.json").read_text()).get("address", "")
        socket = Path(address.removeprefix("unix://"))
        if socket.is_relative_to(SHIM_SOCKETS):
            yield socket
