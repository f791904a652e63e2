"""Components as processes: started detached in the node's network namespace, recognised, stopped.

Each carries its cluster and its component's name in its environment. A process id alone proves nothing,
since ids are used again; an environment with our mark does, and finds processes that lost their pid file.
"""

import contextlib
import hashlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localcluster.binaries.cache import Binaries
from localcluster.control_plane.components import GO_ENVIRONMENT
from localcluster.errors import ClusterError
from localcluster.progress import wait_until
from localcluster.settings import Cluster

CLUSTER_MARK = "HOROVODJOB_CLUSTER"
COMPONENT_MARK = "HOROVODJOB_COMPONENT"
LOG_LIMIT_BYTES = 20_000_000
# Only a hopeless wait ends here: a busy machine takes its time.
READY_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Component:
    """A program of the cluster, and the files whose change asks for a restart of it."""

    name: str
    command: tuple[str, ...]
    configuration: tuple[Path, ...] = ()
    niceness: int = 0

    @property
    def digest(self) -> str:
        content = b"\0".join(file.read_bytes() for file in self.configuration)
        return hashlib.sha256(repr(self.command).encode() + content).hexdigest()


class Processes:
    """The processes of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ensure(self, component: Component, binaries: Binaries) -> bool:
        """Run `component` exactly as described; whether it had to be (re)started for that."""
        if self.pid(component.name) is not None and self._record(component.name)[1:] == [component.digest]:
            return False
        self.stop(component.name)
        self._start(component, binaries)
        return True

    def pid(self, name: str) -> int | None:
        """Process id of the living component `name`, if it lives in the node's present namespace."""
        record = self._record(name)
        pid = int(record[0]) if record and record[0].isdigit() else 0
        if pid and marks(pid) == (str(self.cluster.run), name) and self._is_on_the_node(pid):
            return pid
        return None

    def stop(self, *names: str, grace_seconds: float = 5) -> None:
        """End these components: politely, then not."""
        end([pid for pid, name in self.all().items() if name in names], grace_seconds)
        for name in names:
            self._pid_file(name).unlink(missing_ok=True)

    def all(self) -> dict[int, str]:
        """Every process that carries this cluster's mark, with its component's name."""
        found = {pid: marks(pid) for pid in process_ids()}
        return {pid: mark[1] for pid, mark in found.items() if mark[0] == str(self.cluster.run)}

    def last_words(self, name: str) -> str:
        """The end of the component's log, for an error message."""
        try:
            lines = (self.cluster.log / f"{name}.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "it has no log"
        return " | ".join(lines[-3:])

    def insist_on(self, *names: str) -> None:
        """Raise with its last words if one of the components has ended."""
        for name in names:
            if self.pid(name) is None:
                raise ClusterError(f"{name} has ended: {self.last_words(name)}")

    def wait(self, what: str, condition: Callable[[], bool], *needed: str) -> None:
        """Return as soon as `condition` holds; raise if it never does, or one of the components has ended."""

        def explain() -> str:
            self.insist_on(*needed)
            return ""

        wait_until(what, condition, seconds=READY_SECONDS, explain=explain)

    def _start(self, component: Component, binaries: Binaries) -> None:
        self.cluster.log.mkdir(parents=True, exist_ok=True)
        log = self.cluster.log / f"{component.name}.log"
        if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
            log.rename(log.with_suffix(".log.1"))
        environment = {
            "HOME": "/root",
            "PATH": binaries.search_path,
            CLUSTER_MARK: str(self.cluster.run),
            COMPONENT_MARK: component.name,
            **GO_ENVIRONMENT,
        }
        allow_many_files()  # inherited
        with log.open("ab") as output:
            # nsenter, not `ip netns exec`: that one mounts a new /sys, which hides /sys/fs/cgroup.
            process = subprocess.Popen(
                ["nsenter", f"--net={self.cluster.netns}", "--", *component.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        if component.niceness:
            set_niceness(process.pid, component.niceness)
        self._record_start(component, process.pid)
        # Until nsenter has entered the namespace and the program is loaded, `pid` would not recognize it:
        # /proc shows an empty environment while the kernel replaces one program by another.
        while process.poll() is None and not (program(process.pid) != "nsenter" and self.pid(component.name)):
            time.sleep(0.005)

    def _record_start(self, component: Component, pid: int) -> None:
        file = self._pid_file(component.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".fresh")
        fresh.write_text(f"{pid} {component.digest}\n")
        fresh.rename(file)

    def _pid_file(self, name: str) -> Path:
        return self.cluster.run / f"{name}.pid"

    def _record(self, name: str) -> list[str]:
        try:
            return self._pid_file(name).read_text().split()
        except FileNotFoundError:
            return []

    def _is_on_the_node(self, pid: int) -> bool:
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino == self.cluster.netns.stat().st_ino
        except OSError:
            return False


def set_niceness(pid: int, niceness: int) -> None:
    """Let a process that leads a session, and has one thread so far, go before others or after them.

    Where the kernel groups processes by session, its own niceness counts in the session only: sched(7), autogroup. In a
    container, root may lack the right; the cluster works without.
    """
    with contextlib.suppress(PermissionError, FileNotFoundError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def process_ids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def marks(pid: int) -> tuple[str, str]:
    """The cluster and component in the environment of a process; empty for zombies and for processes of others."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return "", ""
    variables = dict(entry.partition(b"=")[::2] for entry in environment.split(b"\0"))
    return variables.get(CLUSTER_MARK.encode(), b"").decode(), variables.get(COMPONENT_MARK.encode(), b"").decode()


def program(pid: int) -> str:
    """Name of the program that the process runs; empty where it has ended."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def end(pids: list[int], grace_seconds: float) -> None:
    """TERM, and KILL for those that are still there after `grace_seconds`."""
    deadline = time.monotonic() + grace_seconds
    send(pids, signal.SIGTERM if grace_seconds else signal.SIGKILL)
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            send([pid for pid in pids if is_alive(pid)], signal.SIGKILL)
        time.sleep(0.02)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
