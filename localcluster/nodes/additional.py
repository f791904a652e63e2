"""Starts and removes the additional nodes of a cluster that is up."""

import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from localcluster.binaries.cache import Binaries
from localcluster.control_plane.client import Client
from localcluster.control_plane.pki import ensure_issued, kubelet_certificates, write_kubeconfig
from localcluster.images.sharing import share
from localcluster.images.store import ImageStore
from localcluster.machine.cgroups import ensure_cgroup, kill_pods
from localcluster.machine.mounts import make_shared_mount
from localcluster.network.namespace import add_address, remove_address
from localcluster.nodes.cleanup import network_attachments, remove_node
from localcluster.nodes.components import containerd, kubelet
from localcluster.nodes.objects import advertise_gpus, is_node_ready, node_object, node_path, pod_paths
from localcluster.nodes.pools import additional_nodes, all_nodes, save_nodes
from localcluster.processes import Processes
from localcluster.progress import Progress
from localcluster.settings import API_PORT, Cluster, Node

# A running kubelet ends its pods much sooner. The pods of one that does not respond are killed after this time.
DRAIN_SECONDS = 30


class AdditionalNodes:
    """The nodes of a cluster beside the first one."""

    def __init__(self, cluster: Cluster, binaries: Binaries, processes: Processes, progress: Progress) -> None:
        self.cluster, self.binaries, self.processes, self.progress = cluster, binaries, processes, progress

    @property
    def client(self) -> Client:
        """A client of the cluster's API server."""
        return Client(self.cluster.node_address, API_PORT, self.cluster.pki)

    def change(self, wanted: Sequence[Node]) -> None:
        """Save the list of additional nodes, and remove the others, and those that differ, with their pods.

        Raises ClusterError if the API server refuses a label or a taint; then nothing has changed.
        """
        present = additional_nodes(self.cluster)
        client = self.client
        for node in set(wanted) - set(present):
            client.apply(node_path(node), node_object(node), dry_run=True)
        self._remove([node for node in present if node not in wanted])
        save_nodes(self.cluster, wanted)
        if not wanted:
            shutil.rmtree(self.cluster.shared_layers, ignore_errors=True)

    def ensure_running(self) -> None:
        """Start the components of additional nodes that do not run, and wait until the nodes are Ready."""
        additional = additional_nodes(self.cluster)
        if not additional:
            return
        with ThreadPoolExecutor() as pool:
            list(pool.map(prepare, additional))
        for node in additional:
            self.processes.ensure(containerd(node, self.binaries), self.binaries)
        for node in additional:
            name = node.component("containerd")
            self.processes.wait(name, ImageStore(node, self.binaries).is_answering, name)
        self.share_images()
        client = self.client
        started = {node: self._start_kubelet(node, client) for node in additional}
        for node, since in started.items():
            ready = partial(is_node_ready, client, node, since)
            self.processes.wait(f"node {node.name}", ready, node.component("containerd"), node.component("kubelet"))
            advertise_gpus(client, node, node.gpus)
        self.progress.step(f"{', '.join(node.name for node in additional)}: Ready")

    def share_images(self) -> None:
        """Give the additional nodes the images of the first node."""
        first, *additional = (ImageStore(node, self.binaries) for node in all_nodes(self.cluster))
        if additional:
            began = time.monotonic()
            share(first, additional)
            seconds = time.monotonic() - began
            self.progress.step(f"images are on {len(additional)} additional nodes after {seconds:.1f} s")

    def _start_kubelet(self, node: Node, client: Client) -> datetime | None:
        """The time before the start of the kubelet; None if it runs already."""
        if client.get(node_path(node)) is None:
            self.processes.stop(node.component("kubelet"))  # a kubelet adds its labels only when it starts
            client.apply(node_path(node), node_object(node))
        began = datetime.now(UTC).replace(microsecond=0)
        return began if self.processes.ensure(kubelet(node, self.binaries), self.binaries) else None

    def _remove(self, removed: Sequence[Node]) -> None:
        """Delete nodes and their pods, as if each node had been a machine that no longer exists."""
        if not removed:
            return
        client = self.client
        for node in removed:
            if client.get(node_path(node)) is not None:
                client.merge(node_path(node), {"spec": {"unschedulable": True}})
        for path in pod_paths(client, removed):
            client.delete(f"{path}?gracePeriodSeconds=0")
        self._drain(removed)
        kubelets, runtimes = ([node.component(name) for node in removed] for name in ("kubelet", "containerd"))
        self.processes.stop(*kubelets, grace_seconds=0)
        for node in removed:
            kill_pods(node.cgroup)
        self.processes.stop(*runtimes, grace_seconds=0)
        for node in removed:
            client.delete(node_path(node))
            remove_node(node)
            remove_address(self.cluster, node.address)
        self.progress.step(f"{', '.join(node.name for node in removed)}: removed")

    def _drain(self, removed: Sequence[Node]) -> None:
        """Wait until nodes with a running kubelet have no pod on the network."""
        running = [node for node in removed if self.processes.pid(node.component("kubelet")) is not None]
        deadline = time.monotonic() + DRAIN_SECONDS
        while any(map(network_attachments, running)) and time.monotonic() < deadline:
            time.sleep(0.1)


def prepare(node: Node) -> None:
    """Create what the kubelet and the containerd of a node need before they start."""
    cluster = node.cluster
    add_address(cluster, node.address)
    ensure_cgroup(node.cgroup, weight=os.cpu_count() or 1)  # as the kubelet of the first node does for its pods
    make_shared_mount(node.kubelet_root)
    ensure_issued(node.pki, kubelet_certificates(node.name, node.address), cluster.pki)
    server = f"https://{cluster.node_address}:{API_PORT}"
    write_kubeconfig(node.etc / "kubelet.kubeconfig", node.pki, user="kubelet", server=server, name="cluster")
    node.run.mkdir(parents=True, exist_ok=True)
