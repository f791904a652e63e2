"""Up and down of the nodes beside the first one of a cluster that is up."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from localcluster.binaries.cache import Binaries
from localcluster.control_plane.client import Client
from localcluster.control_plane.pki import ensure_issued, kubelet_certificates, write_kubeconfig
from localcluster.errors import ClusterError
from localcluster.health import is_node_ready
from localcluster.images.sharing import share
from localcluster.images.store import ImageStore
from localcluster.machine.cgroups import ensure_cgroup, kill_pods, remove_cgroup
from localcluster.machine.host import (
    CNI_RESULTS,
    make_shared_mount,
    remove_links_to_logs,
    remove_shim_sockets,
    unmount_all,
)
from localcluster.network.namespace import add_address, mount_points, remove_address
from localcluster.nodes.components import containerd, kubelet
from localcluster.nodes.pools import further_nodes, node_object, node_path, nodes, remember
from localcluster.processes import Processes
from localcluster.progress import Progress
from localcluster.settings import API_PORT, Cluster, Node

GPU = "nvidia.com/gpu"
# A kubelet that lives ends its pods much sooner; what one leaves that does not is removed without it.
DRAIN_SECONDS = 30


class FurtherNodes:
    """The nodes beside the first one of a cluster that is up."""

    def __init__(self, cluster: Cluster, binaries: Binaries, processes: Processes, progress: Progress) -> None:
        self.cluster, self.binaries, self.processes, self.progress = cluster, binaries, processes, progress

    @property
    def client(self) -> Client:
        return Client(self.cluster.node_address, API_PORT, self.cluster.pki)

    def change(self, wanted: Sequence[Node]) -> None:
        """Remember that there are to be exactly these. Others, and those that differ, are removed with their pods."""
        present = further_nodes(self.cluster)
        client = self.client
        for node in set(wanted) - set(present):  # before anything changes: it knows bad labels and taints
            client.apply(node_path(node), node_object(node), dry_run=True)
        self._remove([node for node in present if node not in wanted])
        remember(self.cluster, wanted)
        if not wanted:
            shutil.rmtree(self.cluster.shared_layers, ignore_errors=True)

    def ensure_running(self) -> None:
        """Start what is missing of them, and wait until they are Ready."""
        further = further_nodes(self.cluster)
        if not further:
            return
        with ThreadPoolExecutor() as pool:
            list(pool.map(prepare, further))
        for node in further:
            self.processes.ensure(containerd(node, self.binaries), self.binaries)
        for node in further:
            daemon = node.component("containerd")
            self.processes.wait(daemon, ImageStore(node, self.binaries).is_answering, daemon)
        self.share_images()
        client = self.client
        started = {node: self._start_kubelet(node, client) for node in further}
        for node, since in started.items():
            ready = partial(is_node_ready, client, node, since)
            self.processes.wait(f"node {node.name}", ready, node.component("containerd"), node.component("kubelet"))
            claim_gpus(client, node, node.gpus)
        self.progress.step(f"{', '.join(node.name for node in further)}: Ready")

    def share_images(self) -> None:
        """Give them the images of the first node."""
        first, *further = (ImageStore(node, self.binaries) for node in nodes(self.cluster))
        if further:
            began = time.monotonic()
            share(first, further)
            self.progress.step(f"images are on {len(further)} further nodes after {time.monotonic() - began:.1f} s")

    def _start_kubelet(self, node: Node, client: Client) -> datetime | None:
        """Since when the kubelet runs, if it had to be started."""
        if client.get(node_path(node)) is None:
            self.processes.stop(node.component("kubelet"))  # one that runs adds its own labels only when it starts
            client.apply(node_path(node), node_object(node))
        began = datetime.now(UTC).replace(microsecond=0)
        return began if self.processes.ensure(kubelet(node, self.binaries), self.binaries) else None

    def _remove(self, gone: Sequence[Node]) -> None:
        """End these nodes and their pods, as if each had been a machine that was given back."""
        if not gone:
            return
        client = self.client
        for node in gone:
            if client.get(node_path(node)) is not None:
                client.merge(node_path(node), {"spec": {"unschedulable": True}})
        for path in pods_of(client, gone):
            client.delete(f"{path}?gracePeriodSeconds=0")
        self._drain(gone)
        kubelets, daemons = ([node.component(name) for node in gone] for name in ("kubelet", "containerd"))
        self.processes.stop(*kubelets, grace_seconds=0)
        for node in gone:
            kill_pods(node.cgroup)
        self.processes.stop(*daemons, grace_seconds=0)
        for node in gone:
            client.delete(node_path(node))
            remove_files(node)
            remove_address(self.cluster, node.address)
        self.progress.step(f"{', '.join(node.name for node in gone)}: removed")

    def _drain(self, gone: Sequence[Node]) -> None:
        """Wait until the pods are off the network, as far as there are kubelets to see to that."""
        alive = [node for node in gone if self.processes.pid(node.component("kubelet")) is not None]
        deadline = time.monotonic() + DRAIN_SECONDS
        while any(map(attachments, alive)) and time.monotonic() < deadline:
            time.sleep(0.1)


def prepare(node: Node) -> None:
    """All that its kubelet and its containerd find when they start."""
    cluster = node.cluster
    add_address(cluster, node.address)
    ensure_cgroup(node.cgroup, weight=os.cpu_count() or 1)  # as the kubelet of the first node does for its pods
    make_shared_mount(node.kubelet_root)
    ensure_issued(node.pki, kubelet_certificates(node.name, node.address), cluster.pki)
    server = f"https://{cluster.node_address}:{API_PORT}"
    write_kubeconfig(node.etc / "kubelet.kubeconfig", node.pki, user="kubelet", server=server, name="cluster")
    node.run.mkdir(parents=True, exist_ok=True)


def claim_gpus(client: Client, node: Node, count: int) -> None:
    """Let the node have that many GPUs; the kubelet keeps resources that it does not know."""
    amount = str(count) if count else None
    client.merge(f"{node_path(node)}/status", {"status": {"capacity": {GPU: amount}, "allocatable": {GPU: amount}}})


def pods_of(client: Client, wanted: Sequence[Node]) -> Iterator[str]:
    """The path of each pod on these nodes."""
    for node in wanted:
        found = client.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}") or {"items": []}
        for pod in found["items"]:
            yield f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def sandboxes(node: Node) -> list[str]:
    """The id of each of the node's pods to its containerd and to CNI."""
    return [path.name for path in (node.run / "containerd").glob("io.containerd.grpc.v1.cri/sandboxes/*")]


def attachments(node: Node) -> list[Path]:
    """What CNI keeps of each of the node's pods as long as it is on the network."""
    network = node.cluster.interface
    return [path for sandbox in sandboxes(node) for path in CNI_RESULTS.glob(f"{network}-{sandbox}-*")]


def remove_files(node: Node) -> None:
    """Remove what a node that has ended leaves on this machine."""
    unmount_all(node.state, node.run)
    if left := [*mount_points(node.state), *mount_points(node.run)]:
        raise ClusterError(f"{left[0]} is still mounted; nothing below it was removed")
    remove_cgroup(node.cgroup)
    remove_links_to_logs(node.pod_logs)
    remove_shim_sockets(node.run)
    for path in attachments(node):
        path.unlink()
    own = sandboxes(node)
    for reservation in (node.cluster.run / "cni-addresses" / node.cluster.interface).glob("*.*.*.*"):
        if reservation.read_text().split()[0] in own:
            reservation.unlink()
    for path in (node.state, node.run, node.pod_logs):
        shutil.rmtree(path, ignore_errors=True)
    for parent in (node.state.parent, node.run.parent):
        with contextlib.suppress(OSError):  # it has other nodes
            parent.rmdir()
