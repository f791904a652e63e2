"""The worker pods: ssh servers that run ranks in their sessions."""

from typing import Any

from horovodjob.api.constants import KUEUE_PREFIX, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.placement import prefer_spot_nodes
from horovodjob_operator.domain.resources.parts.pod import (
    UNLIMITED_FAILURES,
    build_container,
    build_pod,
    gpu_resources,
    preparation_arguments,
    start_command,
)
from horovodjob_operator.domain.resources.parts.progress_reporting import add_progress_reporting
from horovodjob_operator.domain.resources.parts.template import merge_template
from horovodjob_operator.kueue.queue import queue_name

INDEX_OFFSET = f"{KUEUE_PREFIX}pod-index-offset"
TOPOLOGY_GROUP = f"{KUEUE_PREFIX}podset-group-name"


def worker_pod(
    job: HorovodJob,
    index: int,
    attempt: int,
    progress_url: str,
    secret_names: tuple[str, ...] = (),
    spec_hash: str = "",
) -> dict[str, Any]:
    """The worker with this index.

    Rank 0 reports its progress to `progress_url`, unless that is empty. If rank 0 does not answer, a rank of the next
    worker reports this. In an elastic job every worker can get rank 0.
    `secret_names` are those that the launcher of a running attempt mounts; by default they are those of a new attempt.
    All pods of an attempt have the same `spec_hash`.

    Raises InvalidJob for a template that is not a pod template.
    """
    container = build_container(job, Role.WORKER) | {
        "command": start_command("worker.sh", (secret_names or names.secret_names(job))[-1]),
        "args": preparation_arguments(job),
        "ports": [{"name": "ssh", "containerPort": names.SSH_PORT, "protocol": "TCP"}],
        "startupProbe": {
            "tcpSocket": {"port": names.SSH_PORT},
            "periodSeconds": 1,
            "failureThreshold": UNLIMITED_FAILURES,
        },
        "resources": gpu_resources(job, job.spec.worker.resources),
    }
    labels = names.labels(job, Role.WORKER, index, attempt, spec_hash)
    pod = build_pod(job, Role.WORKER, names.worker_name(job, index), container, labels, secret_names)
    if progress_url and (index in names.REPORTING_INDICES or job.spec.elastic):
        add_progress_reporting(pod["spec"], progress_url)
    if job.spec.spot:
        prefer_spot_nodes(pod["spec"])
    pod = merge_template(pod, job.spec.worker, Role.WORKER)
    if queue_name(job):
        _set_index_offset(pod["metadata"]["annotations"], first_index=job.spec.worker_indices.start)
    return pod


def _set_index_offset(annotations: dict[str, str], *, first_index: int) -> None:
    """Says by how much the index of a worker differs from the number with which Kueue counts it in its topology.

    Kueue counts the workers from 0, and those of a group after the launcher.
    """
    offset = first_index - (1 if TOPOLOGY_GROUP in annotations else 0)
    if offset:
        annotations.setdefault(INDEX_OFFSET, str(offset))
