"""The Workload of a job: what it requests from a queue of Kueue."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import (
    KUEUE_PREFIX,
    LABEL_MAX_EXECUTION,
    LABEL_QUEUE,
    LABEL_QUEUE_PRIORITY,
    LABEL_REPLICA_INDEX,
    LABEL_SPEC_HASH,
    Role,
)
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.parts.metadata import object_metadata
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.errors import InvalidJob
from horovodjob_operator.kueue.queue import queue_name
from horovodjob_operator.kueue.workload import API_VERSION, KIND, PodSet, Workload

KUEUE_CLASS = "WorkloadPriorityClass"
JOB_UID_LABEL = f"{KUEUE_PREFIX}job-uid"
TOPOLOGY_REQUESTS = {
    f"{KUEUE_PREFIX}podset-required-topology": "required",
    f"{KUEUE_PREFIX}podset-preferred-topology": "preferred",
    f"{KUEUE_PREFIX}podset-group-name": "podSetGroupName",
}
UNCONSTRAINED_TOPOLOGY = f"{KUEUE_PREFIX}podset-unconstrained-topology"
# Scheduling depends on these fields of a container, and not on its environment or command.
CONTAINER_FIELDS = ("name", "image", "resources", "ports", "restartPolicy")
# These exist in every node, and a Workload must be small.
LOCAL_VOLUMES = ("emptyDir", "projected", "secret", "configMap", "downwardAPI")
MAX_NAME_CHARACTERS = 63
QUEUE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
MAX_EXECUTION_SECONDS = 2**31 - 1


def workload_name(job: HorovodJob) -> str:
    """Name of the Workload. It contains a hash of the UID, so an existing one belongs to this job."""
    suffix = hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:5]
    return f"horovodjob-{job.metadata.name}"[: MAX_NAME_CHARACTERS - 6].rstrip("-.") + f"-{suffix}"


def job_workload(job: HorovodJob, priority: int) -> dict[str, Any]:
    """The Workload, with the value of the priority class. Raises InvalidJob as the builders of the pods do."""
    metadata = object_metadata(job, workload_name(job), "queue")
    metadata["labels"] |= {JOB_UID_LABEL: job.metadata.uid, LABEL_SPEC_HASH: names.spec_hash(job)}
    spec: dict[str, Any] = {
        "queueName": _valid_queue_name(job),
        "active": True,
        "podSets": pod_sets(job),
        "priority": priority,
        "priorityClassRef": priority_reference(job),
        "maximumExecutionTimeSeconds": max_execution_seconds(job),
    }
    set_fields = {key: value for key, value in spec.items() if value is not None}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": set_fields}


def _valid_queue_name(job: HorovodJob) -> str:
    name = queue_name(job)
    if not QUEUE_NAME.fullmatch(name):
        raise InvalidJob(
            f"label {LABEL_QUEUE} is {name!r}: it must be the name of a LocalQueue, lower-case letters, digits, - and ."
        )
    return name


def pod_sets(job: HorovodJob) -> list[dict[str, Any]]:
    """The launcher and the workers. Raises InvalidJob as the builders of the pods do."""
    sizes = pod_set_sizes(job)
    pods = {Role.LAUNCHER.value: launcher_pod(job, 0, "", "")}
    if Role.WORKER in sizes:
        pods[Role.WORKER.value] = worker_pod(job, job.spec.worker_indices[0], 0, "")
    return [_pod_set(name, sizes[name], pod) for name, pod in pods.items()]


def pod_set_sizes(job: HorovodJob) -> dict[str, PodSet]:
    """The numbers of pods by role; an elastic job can start with fewer workers."""
    sizes, workers = {Role.LAUNCHER.value: PodSet(1)}, len(job.spec.worker_indices)
    if workers:
        minimum = job.spec.min_workers
        sizes[Role.WORKER.value] = PodSet(workers, minimum if job.spec.elastic and minimum < workers else None)
    return sizes


def priority_reference(job: HorovodJob) -> dict[str, str] | None:
    """The class that determines the priority: that of the label, or else that of the pods."""
    if name := job.metadata.labels.get(LABEL_QUEUE_PRIORITY):
        return {"group": "kueue.x-k8s.io", "kind": KUEUE_CLASS, "name": name}
    if name := job.spec.priority_class_name:
        return {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}
    return None


def max_execution_seconds(job: HorovodJob) -> int | None:
    """After how many seconds of admission Kueue deactivates the Workload. Raises InvalidJob."""
    text = job.metadata.labels.get(LABEL_MAX_EXECUTION)
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) <= MAX_EXECUTION_SECONDS:
        raise InvalidJob(f"label {LABEL_MAX_EXECUTION} is {text!r}: it must be a number of seconds above 0")
    return int(text)


def has_other_request(job: HorovodJob, workload: Workload) -> bool:
    """Whether the job requests something else than its Workload. Raises InvalidJob.

    A job without its label, which an administrator holds, requests nothing.
    """
    if not queue_name(job):
        return False
    reference = priority_reference(job)
    return (
        workload.queue_name != queue_name(job)
        or workload.spec_hash != names.spec_hash(job)
        or dict(workload.pod_sets) != pod_set_sizes(job)
        or workload.priority_source is not None
        or workload.priority_class != ((reference["kind"], reference["name"]) if reference else None)
        or workload.max_execution_seconds != max_execution_seconds(job)
    )


def _pod_set(name: str, size: PodSet, pod: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec = pod["metadata"], dict(pod["spec"])
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [{key: one[key] for key in CONTAINER_FIELDS if key in one} for one in spec[field]]
    spec["volumes"] = [volume for volume in spec["volumes"] if not any(kind in volume for kind in LOCAL_VOLUMES)]
    annotations = {key: text for key, text in metadata["annotations"].items() if key.startswith(KUEUE_PREFIX)}
    topology = _topology_request(annotations)
    return {
        "name": name,
        "count": size.count,
        **({"minCount": size.min_count} if size.min_count is not None else {}),
        "template": {"metadata": {"labels": metadata["labels"], "annotations": annotations}, "spec": spec},
        **({"topologyRequest": topology} if topology else {}),
    }


def _topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    request: dict[str, Any] = {
        field: annotations[key] for key, field in TOPOLOGY_REQUESTS.items() if key in annotations
    }
    if annotations.get(UNCONSTRAINED_TOPOLOGY) == "true":
        request["unconstrained"] = True
    # Kueue fills the domains in the order of the ranks.
    return request | {"podIndexLabel": LABEL_REPLICA_INDEX} if request else {}
