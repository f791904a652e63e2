"""The cgroup with all pods of a cluster, and those of additional nodes below it.

Tested with cgroup v1 (each controller has a mount of its own). The branches for cgroup v2 follow the documentation of
the kernel and have not been run on such a machine.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from localcluster.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
REMOVAL_SECONDS = 10
WEIGHT = 8  # by default, all pods together get as much processor time as one process of a test or a compiler
PROCESSOR_WEIGHTS = {"cpu.shares": 1024, "cpu.weight": 100}  # of one process, with cgroup v1 and v2


def is_unified() -> bool:
    """Whether this machine uses only cgroup v2."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """The roots of all cgroup hierarchies; beside those of v1 there may be one of v2 without controllers."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def missing_controllers() -> list[str]:
    """The controllers that the kubelet needs and this machine does not have."""
    if is_unified():
        present = set((ROOT / "cgroup.controllers").read_text().split())
    else:
        lines = Path("/proc/cgroups").read_text().splitlines()[1:]
        active = {line.split()[0] for line in lines if line.split()[3] == "1"}
        present = active & {name for root in hierarchies() for name in root.name.split(",")}
    return [name for name in CONTROLLERS if name not in present]


def ensure_cgroup(name: str, weight: int = WEIGHT) -> None:
    """Create a cgroup with all controllers that the kubelet needs, and the processor weight of `weight` processes."""
    if is_unified():
        enabled = " ".join(f"+{name}" for name in CONTROLLERS)
        (ROOT / "cgroup.subtree_control").write_text(enabled)
    for root in hierarchies():
        group = root / name
        group.mkdir(exist_ok=True)
        if is_unified():
            (group / "cgroup.subtree_control").write_text(enabled)
        for file, weight_of_one in PROCESSOR_WEIGHTS.items():
            if (group / file).exists():
                (group / file).write_text(str(weight * weight_of_one))
        for file in ("cpuset.cpus", "cpuset.mems"):  # in v1 a new cpuset is empty, and no process can run in it
            if (group / file).exists() and not is_unified() and not (group / file).read_text().strip():
                (group / file).write_text((root / file).read_text())


def kill_pods(name: str) -> None:
    """Send SIGKILL to all processes in a cgroup and below it until there are none. Raises ClusterError."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while pids := pod_processes(name):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes {sorted(pids)} in the cgroup {name} do not end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def pod_processes(name: str) -> set[int]:
    """All processes in a cgroup and below it."""
    found: set[int] = set()
    for root in hierarchies():
        for directory, _, _ in os.walk(root / name):  # ignores cgroups that are removed meanwhile
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (Path(directory) / "cgroup.procs").read_text().split())
    return found - {0}


def remove_cgroup(name: str) -> None:
    """Remove a cgroup and those below it from all hierarchies. Raises ClusterError."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while left := [root / name for root in hierarchies() if (root / name).exists()]:
        for group in left:
            for directory, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):  # in use; tried again
                    os.rmdir(directory)
        if time.monotonic() > deadline:
            raise ClusterError(f"the cgroup {left[0]} cannot be removed")
        time.sleep(0.02)
