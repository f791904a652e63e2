"""An API server for tests: etcd, kube-apiserver and, if wanted, kube-controller-manager. No node, no root.

    with ControlPlane() as control_plane:
        client = new_client(control_plane.kubeconfig)

The processes end with the thread that started them, so this thread must exist as long as they are used.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster.binaries.cache import CONTROL_PLANE, GO_ENVIRONMENT, Binaries
from localcluster.control_plane.client import Client
from localcluster.control_plane.components import (
    ControlPlaneSettings,
    apiserver_command,
    controller_manager_command,
    etcd_command,
    write_configuration,
)
from localcluster.control_plane.pki import control_plane_certificates, ensure_certificates, write_kubeconfig
from localcluster.errors import ClusterError
from localcluster.progress import Progress, wait_until
from localcluster.settings import cache_directory

LOOPBACK = "127.0.0.1"
# Far above what a busy machine needs: only a failure takes so long.
READY_SECONDS = 300
ATTEMPTS = 3
PREFIX = "horovodjob-apiserver-"


class ControlPlane:
    """A context manager that runs an API server on free ports of the loopback interface. Raises ClusterError."""

    needs: tuple[str, ...] = (CONTROL_PLANE,)
    """The binaries that it runs, or groups of them; what is missing is built first."""
    settings: ControlPlaneSettings

    def __init__(self, *, controllers: bool = False) -> None:
        self.controllers = controllers
        self.directory = Path()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The audit log: one JSON object a line for each completed request."""
        return self.directory / "log" / "audit.log"

    def __enter__(self) -> Self:
        binaries = Binaries(cache_directory())
        binaries.ensure(Progress(), self.needs)
        remove_abandoned_directories()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start(binaries)
            except ClusterError:
                self.stop()
                if attempt == ATTEMPTS:  # another process may have taken a port meanwhile
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill the processes in reverse order, and remove all their files."""
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        self._processes.clear()
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)

    def pid(self, name: str) -> int:
        """The process id of `etcd`, `kube-apiserver` or `kube-controller-manager`."""
        return self._processes[name].pid

    def wait(self) -> None:
        """Wait until the API server ends."""
        self._processes["kube-apiserver"].wait()

    def _start(self, binaries: Binaries) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        api_port, etcd_port, peer_port = free_ports(3)
        settings = ControlPlaneSettings(
            directory=self.directory,
            address=LOOPBACK,
            bind_address=LOOPBACK,
            secure_port=api_port,
            etcd_client_port=etcd_port,
            etcd_peer_port=peer_port,
            service_cidr="10.96.0.0/16",
            pod_cidr="10.88.0.0/16",
        )
        self.settings = settings
        ensure_certificates(settings.pki, control_plane_certificates((LOOPBACK,)))
        write_configuration(settings, ("kube-controller-manager",))
        write_kubeconfig(self.kubeconfig, settings.pki, user="admin", server=settings.server, name="apiserver")
        self._run("etcd", etcd_command(binaries, settings))
        # The Service `kubernetes` would get a loopback address, which is invalid there.
        self._run("kube-apiserver", [*apiserver_command(binaries, settings), "--endpoint-reconciler-type=none"])
        client = Client(LOOPBACK, api_port, settings.pki)
        wait_until("the API server", client.is_ready, seconds=READY_SECONDS, explain=self._explain)
        if self.controllers:
            command = controller_manager_command(binaries, settings, secure_port=0)
            # No node reports to it: nodes that tests make would count as lost after 50 seconds.
            self._run("kube-controller-manager", [*command, "--node-monitor-grace-period=24h"])

    def _run(self, name: str, command: list[str]) -> None:
        with (self.directory / "log" / f"{name}.log").open("ab") as log:
            # setpriv lets the kernel kill the process when this one ends, even if this one is killed.
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=os.environ | GO_ENVIRONMENT,
                start_new_session=True,
            )

    def _explain(self) -> str:
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = (self.directory / "log" / f"{name}.log").read_text(errors="replace")
                raise ClusterError(f"{name} has ended: {' | '.join(log.splitlines()[-3:])}")
        return ""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface on which no process listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def remove_abandoned_directories() -> None:
    """Remove the directories of control planes whose process was killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = directory.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(directory, ignore_errors=True)
