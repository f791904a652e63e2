"""The environment that the launcher sets for a process, read before Horovod and TensorFlow are imported."""

import math
import os
import socket
from collections.abc import Mapping, Sequence
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


def gpus_of_container(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """The device files of NVIDIA's GPUs in the pod of a job, unless CUDA_VISIBLE_DEVICES hides all of them.

    Outside of a job there are none: a personal computer with a GPU may well have the TensorFlow without CUDA.
    """
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if "HOROVODJOB_POD" not in environment or (chosen is not None and chosen.strip() in {"", "-1", "none", "void"}):
        return []
    return sorted(str(path) for path in devices.glob("nvidia[0-9]*"))


def check_gpus(local_size: int, gpus: int, host: str, present: Sequence[str] = ()) -> None:
    """Raise UsageError if TensorFlow finds none of the GPUs that are present, or fewer than the node has ranks.

    Without the error, a program would compute on the processors of a node whose GPUs are paid for. Ranks that share a
    GPU run out of its memory.
    """
    if present and not gpus:
        raise UsageError(
            f"{host} has {', '.join(present)}, and TensorFlow finds no GPU: use the image trainer-gpu, or "
            "tensorflow[and-cuda] with all its libraries; to compute on processors, set worker.gpus: 0 or "
            "CUDA_VISIBLE_DEVICES=-1"
        )
    if 0 < gpus < local_size:
        has_gpus = f"{gpus} visible GPU{'' if gpus == 1 else 's'}"
        raise UsageError(
            f"{host} has {has_gpus} for {local_size} ranks, and each rank needs one of its own: set worker.slots to "
            f"{gpus} or less (without it, a worker has one rank for each GPU), or mpirun's slots of this host"
        )


def _number(text: str | None, *, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default
