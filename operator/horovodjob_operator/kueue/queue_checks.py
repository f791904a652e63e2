"""The queue of Kueue: a job has pods only while its Workload is admitted."""

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.backoff import reschedule_backoff
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.kueue.queue import Queue
from horovodjob_operator.kueue.workload import Workload

# Kueue changes no quota that it has reserved, except that a Workload can give some back.
GROWTH = "lets no running job grow: to request all, suspend the job and resume it"
ACTIVATION = "it waits until spec.active of {} is true"


def evicted(context: JobContext) -> Outcome | None:
    """The pods have lost their quota: they end, and the job waits in its queue again."""
    workload = context.queue.workload if context.queue else None
    # A finished Workload belongs to an end of the job that its status does not report yet.
    return None if workload is None or workload.is_finished else _end_without_quota(context)


def workload_finished(context: JobContext) -> Outcome | None:
    """The Workload is finished, and nothing has ended the job: somebody else has given its quota back."""
    workload = context.queue.workload if context.queue else None
    return _end_without_quota(context) if workload and workload.is_finished else None


def waiting_outside_queue(context: JobContext) -> Outcome | None:
    """The pods had no nodes in time, and until the next attempt the job is not in its queue either."""
    return reschedule_backoff(context) if context.queue else None


def waiting_in_queue(context: JobContext) -> Outcome | None:
    """The job has no quota: no pod is created."""
    queue, pods = context.queue, context.observed.pods
    if queue is None:
        return None
    if final := queue.final_problem:
        return Outcome(Phase.FAILED, final.reason, final.message)
    if context.has_quota or (queue.workload is None and (context.has_pods or context.gives_up_pods)):
        return None
    if problem := queue.problem:
        return Outcome(
            Phase.QUEUED,
            problem.reason,
            problem.message,
            is_stalled=problem.is_stalled,
            requeue_at=context.next_time(problem.retry_at),
            is_waiting=True,
            deletes_pods=True,
        )
    reason, message = _wait(queue)
    if pods:
        message = f"{message}; waiting for {count_text(len(pods), 'pod')} of the previous attempt to end"
    return Outcome(Phase.QUEUED, reason, message, is_waiting=True, deletes_pods=True)


def queue_note(context: JobContext) -> str:
    """What differs between the queue of a job and what the job requests now; empty if nothing does."""
    queue = context.queue
    if queue is None:
        return ""
    workload = queue.workload
    if workload is None and not context.has_pods:
        return ""
    if workload is None:
        problem = f": {queue.problem.message}" if queue.problem else ""
        return f"the job has no Workload in queue {queue.name} any more, and continues until its pods end{problem}"
    if workload.queue_name != queue.name and not workload.is_prebuilt:
        return f"the job keeps its quota of queue {workload.queue_name}; queue {queue.name} applies when it waits again"
    if context.withheld_workers:
        admitted = len(context.job.spec.worker_indices)
        total = admitted + context.withheld_workers
        return f"the queue has admitted {admitted} of {total} workers, and {GROWTH}"
    return ""


def _end_without_quota(context: JobContext) -> Outcome | None:
    queue, status = context.queue, context.job.status
    if queue is None or queue.workload is None or context.has_quota:
        return None
    if status.start_time is None or not context.has_pods:
        return None  # The status already reports that the job waits.
    reason, message = _eviction(queue, queue.workload)
    failure = Failure(reason, message, is_disruption=True)
    return Outcome(Phase.QUEUED, reason, message, failure=failure, is_eviction=True)


def _eviction(queue: Queue, workload: Workload) -> tuple[str, str]:
    """Reason and message of the end of an attempt without quota."""
    condition = workload.conditions.get("Evicted")
    if condition and condition.is_true:
        remedy = "" if workload.is_active else f"; {ACTIVATION.format(workload.text)}"
        return condition.reason or Reason.QUOTA_LOST, f"evicted from queue {queue.name}: {condition.message}{remedy}"
    return Reason.QUOTA_LOST, f"the pods have no quota of queue {queue.name}: the job waits there with {workload.text}"


def _wait(queue: Queue) -> tuple[str, str]:
    """Why a job without pods waits, in the words of Kueue."""
    workload = queue.workload
    if workload is None:
        return Reason.QUEUED, f"the job enters queue {queue.name}"
    evicted, reserved = workload.conditions.get("Evicted"), workload.conditions.get("QuotaReserved")
    if not workload.is_active:
        cause = f": {evicted.message}" if evicted and evicted.message else ""
        reason = evicted.reason if evicted and evicted.reason.startswith("Deactivated") else "Deactivated"
        return reason, f"the job is held in queue {queue.name}{cause}; {ACTIVATION.format(workload.text)}"
    if workload.has("Evicted") and evicted:
        return evicted.reason or Reason.QUEUED, f"evicted from queue {queue.name}: {evicted.message}"
    if workload.is_finished or workload.is_admitted:
        return Reason.QUOTA_LOST, f"{workload.text} is not for these pods of the job, and another one replaces it"
    if workload.has("QuotaReserved"):
        return "WaitingForAdmissionChecks", _unready_checks(workload)
    if reserved:
        return reserved.reason or Reason.QUEUED, reserved.message
    return Reason.QUEUED, f"{workload.text} waits in queue {queue.name}"


def _unready_checks(workload: Workload) -> str:
    """Which admission checks are not ready, and what they report."""
    checks = (check for check in workload.checks if check.state != "Ready")
    texts = [f"{check.name} is {check.state}{f' ({check.message})' if check.message else ''}" for check in checks]
    where = f"ClusterQueue {workload.cluster_queue} has reserved quota"
    return f"{where}; admission check {', '.join(texts)}" if texts else f"{where}, and has not admitted the job yet"
