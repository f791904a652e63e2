"""Starts and stops a cluster, whatever state an earlier run has left."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from localcluster.azure_files import csi_driver
from localcluster.azure_files.accounts import Storage
from localcluster.binaries.cache import Binaries
from localcluster.control_plane.client import Client
from localcluster.control_plane.components import (
    ControlPlaneSettings,
    apiserver_command,
    controller_manager_command,
    etcd_command,
    scheduler_command,
    write_configuration,
)
from localcluster.control_plane.pki import (
    control_plane_certificates,
    ensure_certificates,
    node_certificates,
    write_kubeconfig,
)
from localcluster.errors import ClusterError, MachineError
from localcluster.images.store import ImageStore
from localcluster.machine.cgroups import ensure_cgroup, kill_pods, remove_cgroup
from localcluster.machine.host import prepare_host, restore_host
from localcluster.machine.mounts import make_shared_mount, unmount_all
from localcluster.network import dns, policy_engine
from localcluster.network.namespace import ensure_network, remove_network
from localcluster.nodes import components
from localcluster.nodes.additional import AdditionalNodes
from localcluster.nodes.cleanup import check_unmounted, remove_shared_entries
from localcluster.nodes.objects import GPU, advertise_gpus, is_node_ready
from localcluster.nodes.pools import Pool, all_nodes, resize, save_nodes
from localcluster.processes import Component, Processes
from localcluster.progress import Progress
from localcluster.settings import API_PORT, COMPONENTS, NODE_NAME, RUN_ROOT, Cluster, Node

IMAGES = ("pause", "coredns")
# Without it, pods and tests on the same processors delay the control plane until leases expire.
CONTROL_PLANE_NICENESS = -10


class LocalCluster:
    """One cluster on this machine."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self.cluster, self.progress = cluster, progress
        self.node = Node(cluster)
        self.binaries = Binaries(cluster.cache)
        self.processes = Processes(cluster)
        self.images = ImageStore(self.node, self.binaries)
        self.additional = AdditionalNodes(cluster, self.binaries, self.processes, progress)
        self.settings = ControlPlaneSettings(
            directory=cluster.state,
            address=cluster.node_address,
            bind_address="0.0.0.0",
            secure_port=API_PORT,
            etcd_client_port=2379,
            etcd_peer_port=2380,
            service_cidr=cluster.service_cidr,
            pod_cidr=cluster.pod_cidr,
        )

    @property
    def client(self) -> Client:
        """A client of the cluster's API server."""
        return Client(self.cluster.node_address, API_PORT, self.cluster.pki)

    def up(self) -> None:
        """Start what does not run of the cluster; if that fails, delete the cluster and create it again."""
        with lock(self.cluster, self.progress):
            self._check_owner()
            try:
                self._start()
            except MachineError:
                raise
            except ClusterError as error:
                self.progress.step(f"{error}")
                self.progress.step("the cluster cannot be repaired; creating a new one")
                self._stop()
                self._start()

    def down(self, *, purge: bool = False) -> None:
        """Stop the cluster and remove all but its logs and imported images; with `purge` also these."""
        with lock(self.cluster, self.progress):
            self._stop()
            self.cluster.gpu_count_file.unlink(missing_ok=True)
            save_nodes(self.cluster, ())
            if purge:
                shutil.rmtree(self.cluster.state, ignore_errors=True)
            self.progress.step(f"cluster {self.cluster.name!r} is down")
            lock_file(self.cluster).unlink()

    def load(self, archives: list[Path]) -> None:
        """Import image archives into all nodes; an archive whose content a node has is not imported again."""
        self._check_running()
        for archive in archives:
            began = time.monotonic()
            names, imported = self.images.load(archive)
            seconds = time.monotonic() - began
            result = f"imported in {seconds:.1f} s" if imported else "already there"
            self.progress.step(f"{archive.name}: {', '.join(names)} {result}")
        with lock(self.cluster, self.progress):
            self.additional.share_images()

    def resize(self, pool: Pool | None) -> None:
        """Let the pool have its size, or remove all additional nodes if there is none; start what does not run."""
        with lock(self.cluster, self.progress):
            self._check_running()
            self.additional.change(resize(self.cluster, pool) if pool else ())
            self._start_node()  # some of its components have the names of all nodes as arguments
            self.additional.ensure_running()

    def advertise_gpus(self, count: int) -> None:
        """Let the first node advertise `count` GPUs that it does not have, also after a restart."""
        self._check_running()
        self.cluster.gpu_count_file.write_text(str(count))
        advertise_gpus(self.client, self.node, count)
        self.progress.step(f"{NODE_NAME} advertises {count} {GPU}")

    @contextlib.contextmanager
    def storage(self) -> Iterator[Storage]:
        """The storage accounts, under the lock of the cluster."""
        self._check_running()
        with lock(self.cluster, self.progress):
            yield Storage(self.cluster)

    def _check_running(self) -> None:
        if missing := [name for name in ("kube-apiserver", "containerd") if self.processes.pid(name) is None]:
            raise ClusterError(f"{missing[0]} does not run; start the cluster with `python3 localcluster up`")

    def _check_owner(self) -> None:
        """Remove a cluster of this name and another cache that has ended. Raises ClusterError if it runs."""
        owner = self.cluster.run / "state"
        if not owner.exists() or owner.read_text() == str(self.cluster.state):
            return
        if self.processes.all():
            raise ClusterError(
                f"a cluster {self.cluster.name!r} with its state in {owner.read_text()} runs already; "
                "end it with `down` and its HOROVODJOB_CACHE, or choose another --name"
            )
        self._stop()

    def _start(self) -> None:
        cluster = self.cluster
        cluster.run.mkdir(parents=True, exist_ok=True)
        (cluster.run / "state").write_text(str(cluster.state))
        prepare_host()
        if ensure_network(cluster):
            self._stop_processes()  # those in an earlier namespace have no network
        self._ensure_certificates()
        ensure_cgroup(cluster.interface)
        make_shared_mount(cluster.kubelet_root)
        self.progress.step("network, certificates and cgroups are ready")
        self._start_control_plane()
        self._wait_until_ready(since=self._start_node())
        self.additional.ensure_running()

    def _ensure_certificates(self) -> None:
        cluster = self.cluster
        certificates = (
            *control_plane_certificates((cluster.node_address, cluster.api_service_address)),
            *node_certificates(NODE_NAME, cluster.node_address),
        )
        if ensure_certificates(cluster.pki, certificates):
            self._stop_processes()
            shutil.rmtree(self.settings.etcd_data, ignore_errors=True)  # its tokens were signed with the old key
        clients = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
        write_configuration(self.settings, clients)
        name = f"horovodjob-{cluster.name}"
        write_kubeconfig(cluster.kubeconfig, cluster.pki, user="admin", server=self.settings.server, name=name)

    def _start_control_plane(self) -> None:
        settings, binaries = self.settings, self.binaries
        self._ensure_control_plane("etcd", etcd_command(binaries, settings))
        self._ensure_control_plane("kube-apiserver", apiserver_command(binaries, settings), settings.audit_policy)
        self._ensure(components.containerd(self.node, binaries))
        self.processes.wait("containerd", self.images.is_answering, "containerd")
        for image in IMAGES:
            self.images.load(binaries.image(image))
        client = self.client
        self.processes.wait("the API server", client.is_ready, "etcd", "kube-apiserver")
        self.progress.step("the API server is ready")
        self._ensure_control_plane(
            "kube-controller-manager", controller_manager_command(binaries, settings, secure_port=10257)
        )
        self._ensure_control_plane("kube-scheduler", scheduler_command(binaries, settings, secure_port=10259))

    def _start_node(self) -> datetime | None:
        """Start the components of the first node. Returns a time before the start of its kubelet, None if it ran."""
        began = datetime.now(UTC).replace(microsecond=0)
        if not policy_engine.is_enforcing(self.cluster):
            self.processes.stop("policy-engine")  # it creates its table only when it starts
        self._ensure(components.policy_engine(self.cluster, all_nodes(self.cluster)))
        csi_driver.apply_driver(self.client)
        Storage(self.cluster).ensure()
        # Before the kubelet, which waits long for a driver that has a socket and does not respond.
        self._ensure(csi_driver.driver(self.cluster, self.binaries))
        started = self._ensure(components.kubelet(self.node, self.binaries))
        self._ensure(components.kube_proxy(self.cluster, self.binaries))
        dns.apply_dns(self.client, self.cluster, self.binaries.image_reference("coredns"))
        return began if started else None

    def _wait_until_ready(self, *, since: datetime | None) -> None:
        client = self.client
        self.processes.wait(f"node {NODE_NAME}", lambda: is_node_ready(client, self.node, since), *COMPONENTS)
        self.progress.step(f"node {NODE_NAME} is Ready")
        if self.cluster.gpu_count_file.exists():
            advertise_gpus(client, self.node, int(self.cluster.gpu_count_file.read_text()))
        self.processes.wait("the policy engine", lambda: policy_engine.is_enforcing(self.cluster), *COMPONENTS)
        self.processes.wait("the driver for Azure Files", lambda: csi_driver.is_registered(client), *COMPONENTS)
        self.processes.wait("the DNS", lambda: dns.is_answering(self.cluster), *COMPONENTS)
        self.progress.step("the DNS answers")

    def _ensure_control_plane(self, name: str, command: list[str], *configuration: Path) -> None:
        self._ensure(Component(name, tuple(command), configuration, CONTROL_PLANE_NICENESS))

    def _ensure(self, component: Component) -> bool:
        if started := self.processes.ensure(component, self.binaries):
            self.progress.step(f"started {component.name}")
        return started

    def _stop_processes(self) -> None:
        """Stop all components and pods; their files remain."""
        self.processes.stop(*self._starting_pods, grace_seconds=1)
        kill_pods(self.cluster.interface)
        self.processes.stop(*set(self.processes.all().values()), grace_seconds=2)

    @property
    def _starting_pods(self) -> set[str]:
        """Components that start pods again; also kubelets of nodes that are no longer in the list of nodes."""
        controllers = {"kube-scheduler", "kube-controller-manager", "kube-proxy"}
        return controllers | {name for name in self.processes.all().values() if name.startswith("kubelet")}

    def _stop(self) -> None:
        cluster = self.cluster
        cluster.kubeconfig.unlink(missing_ok=True)
        # No grace period: what these components would still write is removed below.
        self.processes.stop(*self._starting_pods, grace_seconds=0)
        kill_pods(cluster.interface)
        if self.processes.pid("containerd") is not None:
            with contextlib.suppress(ClusterError):  # the kubelet of the next cluster removes them too, but later
                self.images.remove_containers()
        self.progress.step("all pods have ended")
        self.processes.stop("kube-apiserver", "etcd", grace_seconds=0)
        self.processes.stop(*set(self.processes.all().values()), grace_seconds=3)
        remove_shared_entries(cluster)
        additional = (cluster.state / "nodes", cluster.run / "nodes", cluster.shared_layers)
        unmount_all(cluster.kubelet_root, cluster.run / "containerd", cluster.run / "runc", *additional)
        remove_cgroup(cluster.interface)
        remove_network(cluster)
        check_unmounted(cluster.state, cluster.run)
        state = (cluster.kubelet_root, cluster.azure_files, cluster.etc, cluster.pki, self.settings.etcd_data)
        for path in (*additional, cluster.run, *state):
            shutil.rmtree(path, ignore_errors=True)
        for logs in cluster.log.glob("pods*"):
            shutil.rmtree(logs, ignore_errors=True)
        if not other_clusters(cluster):
            restore_host()


def other_clusters(cluster: Cluster) -> list[str]:
    """The names of other local clusters that are up on this machine."""
    return [entry.name for entry in RUN_ROOT.iterdir() if entry.is_dir() and entry.name != cluster.name]


def lock_file(cluster: Cluster) -> Path:
    """The file of the lock that a command holds while it changes the cluster."""
    return RUN_ROOT / f"{cluster.name}.lock"


@contextlib.contextmanager
def lock(cluster: Cluster, progress: Progress) -> Iterator[None]:
    """Hold the lock of a cluster; waits for another command that holds it."""
    path = lock_file(cluster)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.step("another command is changing this cluster; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            # `down` removes the file, and a lock on a removed file excludes no other command.
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield
                return
