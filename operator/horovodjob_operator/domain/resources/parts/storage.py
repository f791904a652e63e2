"""The volumes of pods, and where they are mounted."""

from typing import Any

from horovodjob.api.base import api_fields
from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts import azure_files
from horovodjob_operator.domain.resources.parts.resource_requests import parse_quantity
from horovodjob_operator.domain.resources.secret import secret_volume

RUN_VOLUME = "horovodjob-run"
TEMP_VOLUME = "horovodjob-temp"
SHARED_MEMORY_VOLUME = "horovodjob-shm"
SHARED_MEMORY_DIRECTORY = "/dev/shm"
MEBIBYTE = 2**20


def volume_mount(name: str, path: str, *, read_only: bool = False) -> dict[str, Any]:
    """Where a volume appears in a container."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def volume_mounts(job: HorovodJob, role: Role) -> list[dict[str, Any]]:
    """Where the volumes that both roles have appear in the main container."""
    has_shared_memory = _has_shared_memory(job, role)
    return [
        volume_mount(names.SECRET_VOLUME, names.SECRET_DIRECTORY, read_only=True),
        volume_mount(RUN_VOLUME, names.RUN_DIRECTORY),
        volume_mount(TEMP_VOLUME, names.JOB_TEMP),
        *([volume_mount(SHARED_MEMORY_VOLUME, SHARED_MEMORY_DIRECTORY)] if has_shared_memory else []),
        *azure_files.mounts(job),
        *(api_fields(mount) for mount in job.spec.volume_mounts or ()),
    ]


def volumes(job: HorovodJob, role: Role, secret_names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The volumes that both roles have."""
    return [
        secret_volume(secret_names or names.secret_names(job), role),
        {"name": RUN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": TEMP_VOLUME, "emptyDir": {}},
        *_shared_memory_volumes(job, role),
        *azure_files.volumes(job, job.spec.launcher if role is Role.LAUNCHER else job.spec.worker),
        *(api_fields(volume) for volume in job.spec.volumes or ()),
    ]


def _shared_memory_volumes(job: HorovodJob, role: Role) -> list[dict[str, Any]]:
    """The volume for /dev/shm, through which NCCL and data loaders exchange data: shmSize, or half of the memory limit.

    Without a limit the kubelet allows as much as the node can allocate.
    """
    if not _has_shared_memory(job, role):
        return []
    size = job.spec.shm_size if job.spec.shm_size is not None else _half_of_memory_limit(job, role)
    source = {"medium": "Memory", **({"sizeLimit": size} if size else {})}
    return [{"name": SHARED_MEMORY_VOLUME, "emptyDir": source}]


def _has_shared_memory(job: HorovodJob, role: Role) -> bool:
    """Whether the job sets shmSize, or the pod has GPUs: the default of container runtimes is 64 MiB."""
    if job.spec.shm_size is not None:
        return True
    has_ranks = role is Role.WORKER or job.spec.launcher.as_worker
    mounts = (mount.mount_path.rstrip("/") for mount in job.spec.volume_mounts or ())
    return job.spec.worker.gpus > 0 and has_ranks and SHARED_MEMORY_DIRECTORY not in mounts


def _half_of_memory_limit(job: HorovodJob, role: Role) -> str:
    resources = (job.spec.launcher.resources if role is Role.LAUNCHER else None) or job.spec.worker.resources
    limit = parse_quantity((resources.limits or {}).get("memory")) if resources else 0
    return f"{limit // 2 // MEBIBYTE}Mi" if limit >= 2 * MEBIBYTE else ""
