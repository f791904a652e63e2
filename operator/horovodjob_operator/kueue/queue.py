"""The queue of Kueue that admits a job, and how much of the job it has admitted. Pure."""

from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import LABEL_QUEUE, MULTIKUEUE_NAME, PREBUILT_WORKLOAD, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import QueueStatus
from horovodjob_operator.kueue.workload import Workload

# Kueue's reason for the end of a Workload if its pods cannot be created as they are admitted.
FAILED_TO_START = "FailedToStart"


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """Why the Workload of a job cannot be created or read, or its admission cannot be applied."""

    reason: Reason
    message: str
    is_stalled: bool = False
    is_final: bool = False
    """The job fails: another try would have the same result."""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, and the Workload with which a job waits in it."""

    name: str
    """Empty if the job has left its queue."""
    workload: Workload | None = None
    position: int | None = None
    problem: QueueProblem | None = None

    @property
    def final_problem(self) -> QueueProblem | None:
        """Why the job fails: what was found now, or by a process that was killed after it had finished the Workload."""
        if self.problem and self.problem.is_final:
            return self.problem
        finished = self.workload.conditions["Finished"] if self.workload and self.workload.is_finished else None
        if finished is None or finished.reason != FAILED_TO_START:
            return None
        return QueueProblem(Reason.ADMISSION_CONFLICT, finished.message, is_final=True)


def queue_name(job: HorovodJob) -> str:
    """Name of the LocalQueue of the job; empty if it needs none.

    The default of a namespace does not apply to a job that runs without a queue: its pods would have to end.
    """
    may_have_default = job.status.queue is not None or job.status.start_time is None
    return job.metadata.labels.get(LABEL_QUEUE, job.default_queue if may_have_default else "")


def queue_of(job: HorovodJob, workload: Workload | None) -> str:
    """Name of the queue that the job waits in: without its label, a Workload that an administrator holds stays."""
    is_held = workload is not None and not workload.is_active and not workload.is_finished
    return queue_name(job) or (workload.queue_name if workload and is_held else "")


def prebuilt_workload(job: HorovodJob) -> str:
    """Name of the Workload that MultiKueue has created for the job; empty if there is none."""
    metadata = job.metadata
    return metadata.annotations.get(PREBUILT_WORKLOAD) or metadata.labels.get(PREBUILT_WORKLOAD, "")


def is_dispatched(job: HorovodJob) -> bool:
    """Whether MultiKueue dispatches the job to another cluster, which runs it and whose status it copies."""
    return job.spec.managed_by == MULTIKUEUE_NAME


def uses_queue(job: HorovodJob) -> bool:
    """Whether the job waits for a queue, or can have a Workload from when it did."""
    return bool(queue_name(job) or job.status.queue)


def admitted_job(job: HorovodJob, queue: Queue | None) -> HorovodJob:
    """The job as large as it is admitted: a queue can admit an elastic job with fewer workers."""
    workload = queue.workload if queue and queue.name else None
    if workload is None or not workload.is_admitted or job.spec.elastic is None:
        return job
    spec = job.spec
    surplus = len(spec.worker_indices) - workload.admitted_count(Role.WORKER)
    if surplus <= 0:
        return job
    worker = spec.worker.model_copy(update={"replicas": spec.worker.replicas - surplus})
    return job.model_copy(update={"spec": spec.model_copy(update={"worker": worker})})


def queue_status(queue: Queue | None) -> QueueStatus | None:
    """What `status.queue` reports; None without a queue.

    A job that has left its queue reports it until its Workload is deleted: a new process would not look for it.
    """
    workload = queue.workload if queue else None
    if queue is None or not (queue.name or workload):
        return None
    if workload is None or not workload.has_reservation:
        return QueueStatus(name=queue.name or (workload.queue_name if workload else ""), position=queue.position)
    return QueueStatus(
        name=workload.queue_name or queue.name, cluster_queue=workload.cluster_queue, flavors=workload.flavors
    )
