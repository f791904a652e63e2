"""The environment that the launcher sets for a process, read before Horovod and TensorFlow are imported."""

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from horovodjob_trainer.errors import UsageError

# horovodrun with Gloo, Open MPI, MPICH and its derivatives
LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Rank of this process, number of ranks in the job and on the node, attempt, and identity of the HorovodJob."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    attempt: int = 1
    elastic: bool = False
    job: str = ""
    job_name: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Launch":
        """The values that horovodrun, Open MPI or MPICH has set; one rank without a launcher."""
        attempt = _number(environment.get("HOROVODJOB_ATTEMPT"), default=1)
        elastic = environment.get("HOROVOD_ELASTIC") == "1"
        job = environment.get("HOROVODJOB_UID", "")
        job_name = f"{environment.get('HOROVODJOB_NAMESPACE')}/{environment.get('HOROVODJOB_NAME')}" if job else ""
        for rank, size, local_size in LAUNCHERS:
            if rank in environment and size in environment:
                return cls(
                    rank=_number(environment[rank], default=0),
                    size=_number(environment[size], default=1),
                    local_size=_number(environment.get(local_size), default=1),
                    attempt=attempt,
                    elastic=elastic,
                    job=job,
                    job_name=job_name,
                )
        return cls(attempt=attempt, elastic=elastic, job=job, job_name=job_name)


def hostname(environment: Mapping[str, str] = os.environ) -> str:
    """The pod of this rank, else its host."""
    return environment.get("HOROVODJOB_POD") or socket.gethostname()


def usable_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Number of cores that this process can use: its CPU affinity or, if lower, the CPU limit of the container."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return min(cores, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or the quota is "max"
        return cores


def threads_per_rank(launch: Launch, cores: int) -> int:
    """Number of threads for each rank if all ranks of the node compute at the same time."""
    return max(1, cores // launch.local_size)


def check_gpus(local_size: int, gpus: int, host: str) -> None:
    """Raise UsageError if a node has GPUs, but fewer than ranks. Ranks that share a GPU run out of its memory."""
    if 0 < gpus < local_size:
        has_gpus = f"{gpus} visible GPU{'' if gpus == 1 else 's'}"
        raise UsageError(
            f"{host} has {has_gpus} for {local_size} ranks, and each rank needs one of its own: set worker.slots to "
            f"{gpus} or less (without it, a worker has one rank for each GPU), or mpirun's slots of this host"
        )


def _number(text: str | None, *, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default
