"""What a process learns from its launcher before Horovod and TensorFlow are loaded."""

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# horovodrun with Gloo, Open MPI, MPICH and its relatives
LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """This process among those of the job, and the attempt it belongs to."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    attempt: int = 1
    elastic: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Launch":
        attempt = _number(environment.get("HOROVODJOB_ATTEMPT"), default=1)
        elastic = environment.get("HOROVOD_ELASTIC") == "1"
        for rank, size, local_size in LAUNCHERS:
            if rank in environment and size in environment:
                return cls(
                    rank=_number(environment[rank], default=0),
                    size=_number(environment[size], default=1),
                    local_size=_number(environment.get(local_size), default=1),
                    attempt=attempt,
                    elastic=elastic,
                )
        return cls(attempt=attempt, elastic=elastic)


def hostname(environment: Mapping[str, str] = os.environ) -> str:
    """The name by which people know where this rank runs: its pod, else its host."""
    return environment.get("HOROVODJOB_POD") or socket.gethostname()


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may keep busy: its affinity, or the container's CPU limit where that is lower."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return min(cores, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2 here, or the quota is "max"
        return cores


def threads_per_rank(launch: Launch, cores: int) -> int:
    """Threads for one rank when all ranks of the node compute at once."""
    return max(1, cores // launch.local_size)


def _number(text: str | None, *, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default
