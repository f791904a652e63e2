"""The components of a cluster as detached processes in its network namespace; and commands that run to their end.

The environment of each process names its cluster and its component. A process id does not identify a component, because
the kernel reuses ids. The environment does, and it also identifies processes whose pid file is lost.
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

from localcluster.binaries.cache import GO_ENVIRONMENT, Binaries
from localcluster.errors import ClusterError
from localcluster.progress import wait_until
from localcluster.settings import Cluster

CLUSTER_VARIABLE = "HOROVODJOB_CLUSTER"
COMPONENT_VARIABLE = "HOROVODJOB_COMPONENT"
LOG_LIMIT_BYTES = 20_000_000
# Far above what a busy machine needs: only a failure takes so long.
READY_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Component:
    """A program of the cluster with its arguments; it restarts when one of its configuration files changes."""

    name: str
    command: tuple[str, ...]
    configuration: tuple[Path, ...] = ()
    niceness: int = 0

    @property
    def digest(self) -> str:
        """A hash of the command and the contents of the configuration files."""
        content = b"\0".join(file.read_bytes() for file in self.configuration)
        return hashlib.sha256(repr(self.command).encode() + content).hexdigest()


class Processes:
    """The processes of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ensure(self, component: Component, binaries: Binaries) -> bool:
        """Start `component`, or restart it if its command or configuration has changed. Returns whether it did."""
        if self.pid(component.name) is not None and self._record(component.name)[1:] == [component.digest]:
            return False
        self.stop(component.name)
        self._start(component, binaries)
        return True

    def pid(self, name: str) -> int | None:
        """The process id of a component, None unless it runs in the present network namespace of the cluster."""
        record = self._record(name)
        pid = int(record[0]) if record and record[0].isdigit() else 0
        if pid and identity(pid) == (str(self.cluster.run), name) and self._is_in_namespace(pid):
            return pid
        return None

    def stop(self, *names: str, grace_seconds: float = 5) -> None:
        """Stop components with SIGTERM, and after `grace_seconds` with SIGKILL."""
        terminate([pid for pid, name in self.all().items() if name in names], grace_seconds)
        for name in names:
            self._pid_file(name).unlink(missing_ok=True)

    def all(self) -> dict[int, str]:
        """The name of the component by process id, for all processes of this cluster."""
        found = {pid: identity(pid) for pid in process_ids()}
        return {pid: component for pid, (run, component) in found.items() if run == str(self.cluster.run)}

    def log_tail(self, name: str) -> str:
        """The last three lines of a component's log, for an error message."""
        try:
            lines = (self.cluster.log / f"{name}.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "it has no log"
        return " | ".join(lines[-3:])

    def check_running(self, *names: str) -> None:
        """Raise ClusterError with the end of the log if one of the components does not run."""
        for name in names:
            if self.pid(name) is None:
                raise ClusterError(f"{name} has ended: {self.log_tail(name)}")

    def wait(self, what: str, condition: Callable[[], bool], *components: str) -> None:
        """Return as soon as `condition` is true. Raises ClusterError if a component ends, or after READY_SECONDS."""

        def explain() -> str:
            self.check_running(*components)
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
            CLUSTER_VARIABLE: str(self.cluster.run),
            COMPONENT_VARIABLE: component.name,
            **GO_ENVIRONMENT,
        }
        raise_file_limit()  # which the process inherits
        with log.open("ab") as output:
            # Not `ip netns exec`, which mounts a new /sys that hides /sys/fs/cgroup.
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
        # `pid` identifies the process only after nsenter has entered the namespace and executed the program:
        # /proc shows an empty environment while the kernel replaces one program by another.
        while process.poll() is None and not (executable(process.pid) != "nsenter" and self.pid(component.name)):
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

    def _is_in_namespace(self, pid: int) -> bool:
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino == self.cluster.netns.stat().st_ino
        except OSError:
            return False


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process that leads a session and has one thread, and of its session.

    If the kernel schedules sessions as groups (sched(7), autogroup), the niceness of a process has an effect only in
    its session. In a container, root may lack the permission; the cluster works without it.
    """
    with contextlib.suppress(PermissionError, FileNotFoundError):
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def process_ids() -> list[int]:
    """The ids of all processes."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def identity(pid: int) -> tuple[str, str]:
    """Run directory of the cluster, and component, of a process; empty strings for zombies and other programs."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return "", ""
    variables = dict(entry.partition(b"=")[::2] for entry in environment.split(b"\0"))
    run, component = (variables.get(name.encode(), b"") for name in (CLUSTER_VARIABLE, COMPONENT_VARIABLE))
    return run.decode(), component.decode()


def executable(pid: int) -> str:
    """The name of the executable of a process; empty if the process has ended."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether the process runs and is not a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def terminate(pids: list[int], grace_seconds: float) -> None:
    """Send SIGTERM, and SIGKILL to processes that run after `grace_seconds`; returns when all have ended."""
    deadline = time.monotonic() + grace_seconds
    send_signal(pids, signal.SIGTERM if grace_seconds else signal.SIGKILL)
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            send_signal([pid for pid in pids if is_alive(pid)], signal.SIGKILL)
        time.sleep(0.02)


def send_signal(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, of which some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def run(*command: str) -> str:
    """Run a command to its end. Returns its standard output; raises ClusterError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` ended with: {(done.stderr or done.stdout).strip()}")
    return done.stdout
