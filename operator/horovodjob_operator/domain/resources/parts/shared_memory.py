"""The memory-backed /dev/shm of pods with ranks, through which NCCL and data loaders exchange data. Pure."""

from typing import Any

from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.resources.parts.resource_requests import parse_quantity
from horovodjob_operator.domain.resources.parts.volume_mount import volume_mount

VOLUME = "horovodjob-shm"
DIRECTORY = "/dev/shm"
MEBIBYTE = 2**20


def shared_memory_mounts(job: HorovodJob, role: Role) -> list[dict[str, Any]]:
    """The mount of /dev/shm, if the pod has one."""
    return [volume_mount(VOLUME, DIRECTORY)] if _has_shared_memory(job, role) else []


def shared_memory_volumes(job: HorovodJob, role: Role) -> list[dict[str, Any]]:
    """The volume for /dev/shm, if the pod has one: shmSize, or half of the memory limit.

    Without a limit the kubelet allows as much as the node can allocate.
    """
    if not _has_shared_memory(job, role):
        return []
    size = job.spec.shm_size if job.spec.shm_size is not None else _half_of_memory_limit(job, role)
    return [{"name": VOLUME, "emptyDir": {"medium": "Memory", **({"sizeLimit": size} if size else {})}}]


def _has_shared_memory(job: HorovodJob, role: Role) -> bool:
    """Whether the job sets shmSize, or the pod has GPUs: the default of container runtimes is 64 MiB."""
    if job.spec.shm_size is not None:
        return True
    has_ranks = role is Role.WORKER or job.spec.launcher.as_worker
    mounts = (mount.mount_path.rstrip("/") for mount in job.spec.volume_mounts or ())
    return job.spec.worker.gpus > 0 and has_ranks and DIRECTORY not in mounts


def _half_of_memory_limit(job: HorovodJob, role: Role) -> str:
    resources = (job.spec.launcher.resources if role is Role.LAUNCHER else None) or job.spec.worker.resources
    limit = parse_quantity((resources.limits or {}).get("memory")) if resources else 0
    return f"{limit // 2 // MEBIBYTE}Mi" if limit >= 2 * MEBIBYTE else ""
