"""Names, labels, paths and ports of a job's objects: each is made here and nowhere else."""

import hashlib
import json
from typing import Any

from horovodjob.api import constants
from horovodjob.api.constants import (
    LABEL_ATTEMPT,
    LABEL_EXPERIMENT,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_REPLICA_INDEX,
    LABEL_ROLE,
    LABEL_SPEC_HASH,
    Role,
)
from horovodjob.api.job import HorovodJob
from horovodjob.api.spec import HorovodJobSpec, RunPolicy, Worker
from horovodjob_operator import start_scripts

SSH_PORT = 2222
MOUNT_ROOT = constants.MOUNT_ROOT
JOB_TEMP = "/mnt/batchai/temp"
RUN_DIRECTORY = "/run/horovodjob"
HOSTFILE = f"{RUN_DIRECTORY}/hostfile"
SECRET_DIRECTORY = "/etc/horovodjob/mpi"
HOSTS_DIRECTORY = "/etc/horovodjob/hosts"
PROGRESS_AUDIENCE = "horovodjob.dev/progress"
PROGRESS_DIRECTORY = "/var/run/secrets/horovodjob.dev/progress"
PROGRESS_TOKEN = "token"
PRIVATE_KEY = "id_ed25519"
SECRET_VOLUME = "horovodjob-mpi"
DEFAULT_EXPERIMENT = "default"
# To the API server, the order of these lists' entries is no difference.
KEYED_LISTS = {
    name
    for name, field in HorovodJobSpec.model_fields.items()
    if isinstance(field.json_schema_extra, dict) and "x-kubernetes-list-map-keys" in field.json_schema_extra
}


def secret_name(job: HorovodJob) -> str:
    """Name of the Secret with the job's keys and the start scripts of this release, for its next attempt.

    The operator can neither change nor read a Secret, so a job that began with other scripts gets a second one.
    """
    name, status = f"{job.metadata.name}-mpi", job.status
    first = status.phase is None or status.start_scripts == start_scripts.VERSION
    return name if first else f"{name}-{start_scripts.VERSION}"


def may_be_secret_of(job: HorovodJob, name: str) -> bool:
    """Whether a name is one that the job's Secret has under this or another release."""
    return name == f"{job.metadata.name}-mpi" or name.startswith(f"{job.metadata.name}-mpi-")


def launcher_name(job: HorovodJob) -> str:
    """Name of the launcher pod, the same in every attempt."""
    return f"{job.metadata.name}-launcher"


def worker_name(job: HorovodJob, index: int) -> str:
    """Name of a worker pod, the same in every attempt."""
    return f"{job.metadata.name}-worker-{index}"


def event_name(job: HorovodJob, identity: str) -> str:
    """Name of an event about the job, the same however often it is posted."""
    return f"{job.metadata.name}.{job.metadata.uid[:8]}.{identity}"


def spec_hash(job: HorovodJob) -> str:
    """Hash of what a spec says about pods: of all that can change only while the job is suspended, but the run policy.

    Another release of the operator, or one with other defaults for all jobs, makes the same hash of the same spec.
    """
    spec = job.stored_spec or job.spec
    neutral: dict[str, Any] = {"run_policy": RunPolicy()}
    if spec.elastic:  # its size can change while it runs
        neutral["worker"] = spec.worker.model_copy(update={"replicas": Worker().replicas})
    # Without fields that have their default value, because the next release may have more of them.
    values = spec.model_copy(update=neutral).model_dump(mode="json", exclude_defaults=True)
    for name in KEYED_LISTS & values.keys():
        values[name] = sorted(values[name] or (), key=_json)
    return hashlib.sha256(_json(values).encode()).hexdigest()[:10]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def labels(job: HorovodJob, role: Role, index: int = 0, attempt: int = 0, spec_hash: str = "") -> dict[str, str]:
    """Labels of a pod of the job."""
    return {
        **object_labels(job),
        LABEL_JOB_UID: job.metadata.uid,
        "app.kubernetes.io/component": role.value,
        LABEL_ROLE: role.value,
        LABEL_REPLICA_INDEX: str(index),
        LABEL_ATTEMPT: str(attempt),
        **({LABEL_SPEC_HASH: spec_hash} if spec_hash else {}),
    }


def object_labels(job: HorovodJob) -> dict[str, str]:
    """Labels of every object of the job."""
    return {
        "app.kubernetes.io/name": "horovodjob",
        "app.kubernetes.io/instance": job.metadata.name,
        "app.kubernetes.io/managed-by": "horovodjob-operator",
        LABEL_JOB: job.metadata.name,
    }


def selector(job: HorovodJob, role: Role | None = None) -> str:
    """Label selector of the job's pods, or of those with one role."""
    selected = f"{LABEL_JOB}={job.metadata.name}"
    return f"{selected},{LABEL_ROLE}={role.value}" if role else selected


def own_pods_selector(job: HorovodJob, role: Role | None = None) -> str:
    """Label selector that no pod matches but those that the operator made for this very job."""
    return f"{selector(job, role)},{LABEL_JOB_UID}={job.metadata.uid}"


def output_path_segment(job: HorovodJob) -> str:
    """Path below the user's log directory that no other job has."""
    experiment = job.metadata.labels.get(LABEL_EXPERIMENT, DEFAULT_EXPERIMENT)
    return f"{job.metadata.namespace}/experiments/{experiment}/jobs/{job.metadata.name}/{job.metadata.uid}"


def log_fields(job: HorovodJob) -> dict[str, str]:
    """Fields of each log line about a job."""
    return {"namespace": job.metadata.namespace, "job": job.metadata.name}
