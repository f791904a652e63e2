"""Up, down, status: the whole cluster, from whatever state an earlier run has left behind."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from localcluster.azure_files import accounts, csi_driver
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
from localcluster.errors import ClusterError, MachineUnfit
from localcluster.health import is_node_ready
from localcluster.images.store import ImageStore
from localcluster.machine.cgroups import ensure_cgroup, kill_pods, remove_cgroup
from localcluster.machine.host import (
    make_shared_mount,
    prepare_host,
    remove_runtime_traces,
    restore_host,
    unmount_all,
)
from localcluster.network import dns, policy_engine
from localcluster.network.namespace import ensure_network, mount_points, remove_network
from localcluster.nodes import components
from localcluster.nodes.additional import GPU, FurtherNodes, claim_gpus
from localcluster.nodes.pools import Pool, nodes, remember, resized
from localcluster.processes import Component, Processes
from localcluster.progress import Progress
from localcluster.settings import API_PORT, COMPONENTS, NODE_NAME, RUN_ROOT, Cluster, Node

IMAGES = ("pause", "coredns")
# Pods and tests on the same processors would make it so slow that leases lapse.
CONTROL_PLANE_NICENESS = -10


class LocalCluster:
    """One cluster on this machine."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self.cluster, self.progress = cluster, progress
        self.node = Node(cluster)
        self.binaries = Binaries(cluster.cache)
        self.processes = Processes(cluster)
        self.images = ImageStore(self.node, self.binaries)
        self.further = FurtherNodes(cluster, self.binaries, self.processes, progress)
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
        return Client(self.cluster.node_address, API_PORT, self.cluster.pki)

    def up(self) -> None:
        """A running cluster, whatever was there before; changes nothing if it runs already."""
        with lock(self.cluster, self.progress):
            self._take_over()
            try:
                self._bring_up()
            except MachineUnfit:
                raise
            except ClusterError as error:
                self.progress.step(f"{error}")
                self.progress.step("that does not heal; starting again from nothing")
                self._take_down()
                self._bring_up()

    def down(self, *, purge: bool = False) -> None:
        """Nothing left of the cluster but its logs and its imported images; not even those with `purge`."""
        with lock(self.cluster, self.progress):
            self._take_down()
            self.cluster.gpu_count_file.unlink(missing_ok=True)
            remember(self.cluster, ())
            if purge:
                shutil.rmtree(self.cluster.state, ignore_errors=True)
            self.progress.step(f"cluster {self.cluster.name!r} is down")
            lock_file(self.cluster).unlink()

    def load(self, archives: list[Path]) -> None:
        """Import image archives; those whose content is there already cost nothing."""
        self._insist_on_being_up()
        for archive in archives:
            began = time.monotonic()
            names, imported = self.images.load(archive)
            seconds = time.monotonic() - began
            verb = f"imported in {seconds:.1f} s" if imported else "already there"
            self.progress.step(f"{archive.name}: {', '.join(names)} {verb}")
        with lock(self.cluster, self.progress):
            self.further.share_images()

    def resize(self, pool: Pool | None) -> None:
        """Let there be so many nodes of this kind beside the first, or none of any kind; heals those that stay."""
        with lock(self.cluster, self.progress):
            self._insist_on_being_up()
            self.further.change(resized(self.cluster, pool) if pool else ())
            self._start_node()  # some of its components have the nodes as arguments
            self.further.ensure_running()

    def advertise_gpus(self, count: int) -> None:
        """Let the node claim `count` GPUs; the kubelet keeps resources that it does not know."""
        self._insist_on_being_up()
        self.cluster.gpu_count_file.write_text(str(count))
        claim_gpus(self.client, self.node, count)
        self.progress.step(f"{NODE_NAME} advertises {count} {GPU}")

    @contextlib.contextmanager
    def storage(self) -> Iterator[accounts.Storage]:
        """The storage accounts, which nobody else changes meanwhile."""
        self._insist_on_being_up()
        with lock(self.cluster, self.progress):
            yield accounts.Storage(self.cluster)

    def _insist_on_being_up(self) -> None:
        if missing := [name for name in ("kube-apiserver", "containerd") if self.processes.pid(name) is None]:
            raise ClusterError(f"{missing[0]} does not run; start the cluster with `python3 localcluster up`")

    def _take_over(self) -> None:
        """Refuse a cluster of the same name that runs from another cache; remove what it left if it is dead."""
        owner = self.cluster.run / "state"
        if not owner.exists() or owner.read_text() == str(self.cluster.state):
            return
        if self.processes.all():
            raise ClusterError(
                f"a cluster {self.cluster.name!r} with its state in {owner.read_text()} runs already; "
                "end it with `down` and its HOROVODJOB_CACHE, or choose another --name"
            )
        self._take_down()

    def _bring_up(self) -> None:
        cluster = self.cluster
        cluster.run.mkdir(parents=True, exist_ok=True)
        (cluster.run / "state").write_text(str(cluster.state))
        prepare_host()
        if ensure_network(cluster):
            self._end_processes()  # those of an earlier namespace are cut off
        self._ensure_certificates()
        ensure_cgroup(cluster.interface)
        make_shared_mount(cluster.kubelet_root)
        self.progress.step("network, certificates and cgroups are there")
        self._start_control_plane()
        self._wait_until_usable(since=self._start_node())
        self.further.ensure_running()

    def _ensure_certificates(self) -> None:
        cluster = self.cluster
        certificates = (
            *control_plane_certificates((cluster.node_address, cluster.api_service_address)),
            *node_certificates(NODE_NAME, cluster.node_address),
        )
        if ensure_certificates(cluster.pki, certificates):
            self._end_processes()
            shutil.rmtree(self.settings.etcd_data, ignore_errors=True)  # its tokens were signed with the old key
        clients = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
        write_configuration(self.settings, clients)
        name = f"horovodjob-{cluster.name}"
        write_kubeconfig(cluster.kubeconfig, cluster.pki, user="admin", server=self.settings.server, name=name)

    def _start_control_plane(self) -> None:
        plan, binaries = self.settings, self.binaries
        self._ensure_control_plane("etcd", etcd_command(binaries, plan))
        self._ensure_control_plane("kube-apiserver", apiserver_command(binaries, plan), plan.audit_policy)
        self._ensure(components.containerd(self.node, binaries))
        self.processes.wait("containerd", self.images.is_answering, "containerd")
        for image in IMAGES:
            self.images.load(binaries.image(image))
        client = self.client
        self.processes.wait("the API server", client.is_ready, "etcd", "kube-apiserver")
        self.progress.step("the API server is ready")
        self._ensure_control_plane(
            "kube-controller-manager", controller_manager_command(binaries, plan, secure_port=10257)
        )
        self._ensure_control_plane("kube-scheduler", scheduler_command(binaries, plan, secure_port=10259))

    def _start_node(self) -> datetime | None:
        """Start what is missing of the node; since when its kubelet runs, if it had to be started."""
        began = datetime.now(UTC).replace(microsecond=0)
        if not policy_engine.is_enforcing(self.cluster):
            self.processes.stop("policy-engine")  # one that runs and has lost its table makes it when it starts
        self._ensure(components.policy_engine(self.cluster, nodes(self.cluster)))
        csi_driver.apply_driver(self.client)
        accounts.Storage(self.cluster).ensure()
        # Before the kubelet, which waits long for a driver whose socket it finds and that does not answer.
        self._ensure(csi_driver.driver(self.cluster, self.binaries))
        started = self._ensure(components.kubelet(self.node, self.binaries))
        self._ensure(components.kube_proxy(self.cluster, self.binaries))
        dns.apply_dns(self.client, self.cluster, self.binaries.image_reference("coredns"))
        return began if started else None

    def _wait_until_usable(self, *, since: datetime | None) -> None:
        client = self.client
        self.processes.wait(f"node {NODE_NAME}", lambda: is_node_ready(client, self.node, since), *COMPONENTS)
        self.progress.step(f"node {NODE_NAME} is Ready")
        if self.cluster.gpu_count_file.exists():
            claim_gpus(client, self.node, int(self.cluster.gpu_count_file.read_text()))
        self.processes.wait("the policy engine", lambda: policy_engine.is_enforcing(self.cluster), *COMPONENTS)
        self.processes.wait("the driver for Azure Files", lambda: csi_driver.is_registered(client), *COMPONENTS)
        self.processes.wait("the DNS", lambda: dns.answers(self.cluster), *COMPONENTS)
        self.progress.step("the DNS answers")

    def _ensure_control_plane(self, name: str, command: list[str], *configuration: Path) -> None:
        self._ensure(Component(name, tuple(command), configuration, CONTROL_PLANE_NICENESS))

    def _ensure(self, component: Component) -> bool:
        if started := self.processes.ensure(component, self.binaries):
            self.progress.step(f"started {component.name}")
        return started

    def _end_processes(self) -> None:
        """End all components and pods; what they have stored stays."""
        self.processes.stop(*self._active, grace_seconds=1)
        kill_pods(self.cluster.interface)
        self.processes.stop(*set(self.processes.all().values()), grace_seconds=2)

    @property
    def _active(self) -> set[str]:
        """Components that would bring pods back; kubelets also those of nodes that nobody remembers."""
        controllers = {"kube-scheduler", "kube-controller-manager", "kube-proxy"}
        return controllers | {name for name in self.processes.all().values() if name.startswith("kubelet")}

    def _take_down(self) -> None:
        cluster = self.cluster
        cluster.kubeconfig.unlink(missing_ok=True)
        # Nothing that these components would still write is kept, so they need no time to say goodbye.
        self.processes.stop(*self._active, grace_seconds=0)
        kill_pods(cluster.interface)
        if self.processes.pid("containerd") is not None:
            with contextlib.suppress(ClusterError):  # the kubelet of the next cluster removes them, only later
                self.images.remove_containers()
        self.progress.step("all pods have ended")
        self.processes.stop("kube-apiserver", "etcd", grace_seconds=0)
        self.processes.stop(*set(self.processes.all().values()), grace_seconds=3)
        remove_runtime_traces(cluster)
        further = (cluster.state / "nodes", cluster.run / "nodes", cluster.shared_layers)
        unmount_all(cluster.kubelet_root, cluster.run / "containerd", cluster.run / "runc", *further)
        remove_cgroup(cluster.interface)
        remove_network(cluster)
        if left := [*mount_points(cluster.state), *mount_points(cluster.run)]:
            raise ClusterError(f"{left[0]} is still mounted; nothing below it was removed")
        state = (cluster.kubelet_root, cluster.azure_files, cluster.etc, cluster.pki, self.settings.etcd_data)
        for path in (*further, cluster.run, *state):
            shutil.rmtree(path, ignore_errors=True)
        for logs in cluster.log.glob("pods*"):
            shutil.rmtree(logs, ignore_errors=True)
        if not others(cluster):
            restore_host()


def others(cluster: Cluster) -> list[str]:
    """Other local clusters that are up on this machine."""
    return [entry.name for entry in RUN_ROOT.iterdir() if entry.is_dir() and entry.name != cluster.name]


def lock_file(cluster: Cluster) -> Path:
    return RUN_ROOT / f"{cluster.name}.lock"


@contextlib.contextmanager
def lock(cluster: Cluster, progress: Progress) -> Iterator[None]:
    """Only one command at a time changes a cluster."""
    path = lock_file(cluster)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.step("another command is changing this cluster; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            # `down` removes the file: a lock on a removed file excludes nobody.
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield
                return
