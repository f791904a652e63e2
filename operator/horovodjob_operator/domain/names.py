"""Names, labels, paths and ports of the objects of a job. No other module composes them. Pure."""

import hashlib
import json
from datetime import datetime
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
from horovodjob.api.policies import RunPolicy
from horovodjob.api.replicas import Worker
from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator import start_scripts

SSH_PORT = 2222
MOUNT_ROOT = constants.MOUNT_ROOT
JOB_TEMP = "/mnt/batchai/temp"
RUN_DIRECTORY = "/run/horovodjob"
HOSTFILE = f"{RUN_DIRECTORY}/hostfile"
SECRET_DIRECTORY = "/etc/horovodjob/mpi"
HOSTS_DIRECTORY = "/etc/horovodjob/hosts"
HOSTS_FILE = "hosts"
PROGRESS_AUDIENCE = "horovodjob.dev/progress"
# Replicas that can report: that of rank 0, and that of its deputy.
REPORTING_INDICES = range(2)
PROGRESS_DIRECTORY = "/var/run/secrets/horovodjob.dev/progress"
PROGRESS_TOKEN = "token"
# Keys of the Secret of a job, which are names of files in the pods.
PRIVATE_KEY = "id_ed25519"
AUTHORIZED_KEYS = "authorized_keys"
HOST_KEY = "ssh_host_ed25519_key"
KNOWN_HOSTS = "known_hosts"
HOST_KEY_ALIAS = "horovodjob"
SECRET_VOLUME = "horovodjob-mpi"
# The admission policy reserves both prefixes for the operator.
KEYS_PREFIX, _SCRIPTS_PREFIX = "horovodjob-keys-", "horovodjob-scripts-"
# One a namespace and release: a release with other scripts has another.
SCRIPTS_SECRET = f"{_SCRIPTS_PREFIX}{start_scripts.VERSION}"
DEFAULT_EXPERIMENT = "default"
_LAUNCHER_SUFFIX = f"-{Role.LAUNCHER}"
_WORKER_INFIX = f"-{Role.WORKER}-"
# Lists whose order has no meaning for the API server.
KEYED_LISTS = {
    name
    for name, field in HorovodJobSpec.model_fields.items()
    if isinstance(field.json_schema_extra, dict) and "x-kubernetes-list-map-keys" in field.json_schema_extra
}


def secret_names(job: HorovodJob) -> tuple[str, str]:
    """Names of the Secrets that pods of a new attempt mount: that with the keys of the job, and the start scripts.

    The operator cannot read Secrets. The UID in the name says that an existing Secret belongs to the job.
    """
    return f"{KEYS_PREFIX}{job.metadata.uid}", SCRIPTS_SECRET


def scripts_digest(secret_name: str) -> str:
    """Digest of the start scripts in the Secret with this name; empty for a Secret of a release that verifies none."""
    digest = secret_name.removeprefix(_SCRIPTS_PREFIX)
    return digest if len(digest) == len(start_scripts.VERSION) else ""


def launcher_name(job: HorovodJob) -> str:
    """Name of the launcher pod, the same in every attempt."""
    return f"{job.metadata.name}{_LAUNCHER_SUFFIX}"


def worker_name(job: HorovodJob, index: int) -> str:
    """Name of a worker pod, the same in every attempt."""
    return f"{job.metadata.name}{_WORKER_INFIX}{index}"


def job_name(pod_name: str) -> str:
    """Name of the job whose launcher or worker has this name; empty if it is no such name."""
    if pod_name.endswith(_LAUNCHER_SUFFIX):
        return pod_name.removesuffix(_LAUNCHER_SUFFIX)
    return pod_name.rpartition(_WORKER_INFIX)[0]


def worker_index(pod_name: str) -> int:
    """Index of the worker with this name."""
    return int(pod_name.rpartition("-")[2])


def event_name(job: HorovodJob, at: datetime) -> str:
    """Name of an event of the job at this time; `kubectl describe` sorts events by name."""
    return f"{job.metadata.name}.{job.metadata.uid[:8]}.{round(at.timestamp() * 1e6):x}"


def spec_hash(job: HorovodJob) -> str:
    """Hash of the fields of a spec that can change only while the job is suspended, without the run policy.

    Other releases of the operator, and other defaults for all jobs, result in the same hash of the same spec.
    """
    spec = job.stored_spec or job.spec
    neutral: dict[str, Any] = {"run_policy": RunPolicy(), "managed_by": None}
    if spec.elastic:  # Its size can change while it runs.
        neutral["worker"] = spec.worker.model_copy(update={"replicas": Worker().replicas})
    # Without default values, because the next release can have more fields.
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
        "app.kubernetes.io/managed-by": constants.OPERATOR_APP_NAME,
        LABEL_JOB: job.metadata.name,
    }


def own_pod_labels(job: HorovodJob) -> dict[str, str]:
    """Labels that only pods of this job have, and not pods of an earlier job with the same name."""
    return {LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid}


def selector(job: HorovodJob, role: Role | None = None) -> str:
    """Label selector of the job's pods, or of those with one role."""
    job_selector = f"{LABEL_JOB}={job.metadata.name}"
    return f"{job_selector},{LABEL_ROLE}={role.value}" if role else job_selector


def own_pods_selector(job: HorovodJob, role: Role | None = None) -> str:
    """Label selector of the pods that the operator created for this job, not of those of an earlier job."""
    return f"{selector(job, role)},{LABEL_JOB_UID}={job.metadata.uid}"


def output_path_segment(job: HorovodJob) -> str:
    """Path below the log directory of the user, unique to the job."""
    experiment = job.metadata.labels.get(LABEL_EXPERIMENT, DEFAULT_EXPERIMENT)
    return f"{job.metadata.namespace}/experiments/{experiment}/jobs/{job.metadata.name}/{job.metadata.uid}"


def log_fields(job: HorovodJob) -> dict[str, str]:
    """Fields of each log line about a job."""
    return {"namespace": job.metadata.namespace, "job": job.metadata.name}
