"""What to do about the Workload of a job, as a value. Pure.

Everything follows from the Workload, the job and its pods, so an operator that is killed after any write continues.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horovodjob.api.base import rfc3339
from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.checks.backoff import reschedule_backoff
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.kueue.queue import FAILED_TO_START, Queue, is_dispatched
from horovodjob_operator.kueue.workload import Workload
from horovodjob_operator.kueue.workload_manifest import has_other_request, priority_reference

# After these evictions Kueue may admit the Workload again at once; after the others, something has to change first.
REQUEUED_EVICTIONS = ("Preempted", "NodeFailures")
DEACTIVATED = "Deactivated"
EXECUTION_TIME = "accumulatedPastExecutionTimeSeconds"
CLEARED_FIELDS = ("admission", "reclaimablePods", EXECUTION_TIME)
# Kueue permits no longer messages of conditions.
MAX_MESSAGE_CHARACTERS = 32768


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """One write at most: the next reconciliation does what remains."""

    create: bool = False
    request: bool = False
    """Updates the spec to what the job requests now."""
    priority: bool = False
    """Updates the priority alone, which can change while quota is reserved."""
    delete: bool = False
    status: Mapping[str, Any] | None = None
    """Replaces the status."""
    effect: str = ""
    """The effect, for the log."""


def workload_plan(context: JobContext) -> WorkloadPlan:
    """What to do, given the status of the job after this reconciliation. Raises InvalidJob.

    The Workload of a job that has ended is finished before its last status is written.
    """
    job, queue, pods, phase = context.job, context.observed.queue, context.observed.pods, context.job.status.phase
    if queue is None:
        return WorkloadPlan()
    workload = queue.workload
    if job.metadata.deletion_timestamp:
        return _to_release(context, workload)
    if job.status.is_finished:
        return WorkloadPlan()
    if is_dispatched(job):
        return _to_dispatch(context, queue)
    has_no_use = _has_no_use_for_quota(context)
    if workload is None:
        is_wanted = bool(queue.name) and phase not in (Phase.SUSPENDED, Phase.TERMINATING) and not has_no_use
        return WorkloadPlan(create=is_wanted)
    if not queue.name:
        return WorkloadPlan(delete=True, effect="deleted the Workload: the job has left its queue")
    if workload.is_finished:
        # Somebody else finished it, or the operator did for an end of the job that its status does not report.
        return WorkloadPlan(delete=not pods and phase is not Phase.TERMINATING, effect="deleted the finished Workload")
    if phase is Phase.TERMINATING:
        return _to_give_back(context, workload)
    if phase is Phase.SUSPENDED and (workload.is_active or workload.is_prebuilt):
        is_over = not pods and not workload.is_prebuilt
        return WorkloadPlan(delete=is_over, effect="deleted the Workload of the suspended job")
    if workload.has_lost_quota:
        return WorkloadPlan() if pods else _to_clear(workload, context.now)
    if phase is Phase.SUSPENDED:
        return WorkloadPlan()  # An administrator holds this Workload, and another one would be active.
    if workload.is_prebuilt:
        return _to_report(context, workload)
    if has_no_use and workload.is_active:
        return WorkloadPlan(delete=not pods, effect="deleted the Workload until pods can be created")
    if not workload.has_reservation:
        is_outdated = has_other_request(job, workload)
        return WorkloadPlan(request=is_outdated, effect="updated the Workload to the changed job")
    if not pods and not context.has_quota and workload.is_admitted and workload.is_active:
        return WorkloadPlan(delete=True, effect="deleted the Workload, which was admitted for another spec of the job")
    if _has_other_priority(context, workload):
        return WorkloadPlan(priority=True, effect="updated the priority of the Workload")
    return _to_report(context, workload)


def _to_release(context: JobContext, workload: Workload | None) -> WorkloadPlan:
    """Deletes the Workload with the last pod of a deleted job: a finalizer of others can keep the job without limit."""
    if workload is None or workload.is_finished or workload.is_prebuilt:
        return WorkloadPlan()
    has_pods = any(pod.is_active for pod in context.observed.pods)
    return WorkloadPlan(delete=not has_pods, effect="deleted the Workload of the deleted job")


def _has_no_use_for_quota(context: JobContext) -> bool:
    """Whether the job creates no pods for now: the API server refuses them, or they had no nodes in time."""
    is_refused = context.gives_up_pods and not context.has_pods
    return is_refused or reschedule_backoff(context) is not None


def _to_dispatch(context: JobContext, queue: Queue) -> WorkloadPlan:
    """The Workload of a job whose pods run in another cluster: MultiKueue finishes it."""
    job, workload, is_suspended = context.job, queue.workload, context.job.spec.run_policy.suspend
    if workload is None:
        return WorkloadPlan(create=bool(queue.name) and not is_suspended)
    if workload.is_finished:
        return WorkloadPlan()
    if (is_suspended and workload.is_active) or not queue.name:
        return WorkloadPlan(delete=True, effect="deleted the Workload of the suspended job")
    if workload.has_lost_quota:
        return _to_clear(workload, context.now)
    is_outdated = not workload.has_reservation and has_other_request(job, workload)
    return WorkloadPlan(request=is_outdated, effect="updated the Workload to the changed job")


def _to_clear(workload: Workload, now: datetime) -> WorkloadPlan:
    status = cleared_status(workload, now)
    return WorkloadPlan(status=status, effect="gave the quota of the evicted Workload back")


def finished_status(status: HorovodJobStatus, now: datetime) -> dict[str, Any]:
    """The condition Finished, which gives the quota back, for the last status of the job."""
    ready = status.condition(ConditionType.READY)
    reason, message = (ready.reason, ready.message) if ready else ("", "")
    failure = FAILED_TO_START if reason == Reason.ADMISSION_CONFLICT else "Failed"
    end = "Succeeded" if status.phase is Phase.SUCCEEDED else failure
    return {"conditions": [_condition("Finished", True, end, message, now)]}


def cleared_status(workload: Workload, now: datetime) -> dict[str, Any]:
    """The status without the reservation: what Kueue waits for after an eviction."""
    evicted = workload.conditions["Evicted"]
    is_requeued = evicted.reason in REQUEUED_EVICTIONS
    # Kueue lets a Workload that an administrator activates again back into its queue only for this reason.
    reason = DEACTIVATED if evicted.reason.startswith(DEACTIVATED) else evicted.reason
    changes = [
        _condition("QuotaReserved", False, "Pending", evicted.message, now),
        _condition("Admitted", False, "NoReservation", "The workload has no reservation", now),
        _condition("Requeued", is_requeued, reason, evicted.message, now),
    ]
    if "PodsReady" in workload.conditions:
        # Also if it is False: the time of a recovery that this eviction has ended would evict the next admission.
        changes.append(_condition("PodsReady", False, "WaitForStart", "the queue has evicted the pods", now))
    status = {key: value for key, value in workload.status.items() if key not in CLEARED_FIELDS}
    # Kueue leaves this condition, and would deactivate the Workload again.
    conditions = [one for one in _changed(workload, changes) if one["type"] != "DeactivationTarget"]
    if not evicted.reason.startswith(DEACTIVATED):
        status |= {EXECUTION_TIME: workload.status.get(EXECUTION_TIME, 0) + _admitted_seconds(workload, now)}
    return status | {"conditions": conditions}


def _admitted_seconds(workload: Workload, now: datetime) -> int:
    """How long the Workload has been admitted, which counts for its maximum execution time."""
    times = (one["lastTransitionTime"] for one in workload.status.get("conditions") or () if one["type"] == "Admitted")
    since = next(times, None) if workload.has("Admitted") else None
    return max(0, int((now - datetime.fromisoformat(since)).total_seconds())) if since else 0


def _to_report(context: JobContext, workload: Workload) -> WorkloadPlan:
    """Reports that the pods are ready, and gives the quota of removed workers back."""
    if not workload.is_admitted:
        return WorkloadPlan()
    before, phase = workload.conditions.get("PodsReady"), context.job.status.phase
    was_ready = before is not None and before.is_true
    if phase is Phase.RUNNING and not was_ready:
        reason = "Recovered" if before and before.reason in ("WaitForRecovery", "Recovered") else "Started"
        ready = _condition("PodsReady", True, reason, "the ranks run", context.now)
    elif was_ready and phase in (Phase.RESTARTING, Phase.QUEUED, Phase.STARTING):
        ready = _condition("PodsReady", False, "WaitForRecovery", "the attempt has ended, another starts", context.now)
    else:
        return _to_give_back(context, workload)
    status = {**workload.status, "conditions": _changed(workload, [ready])}
    return WorkloadPlan(status=status, effect="reported to the queue whether the pods are ready")


def _to_give_back(context: JobContext, workload: Workload) -> WorkloadPlan:
    """Gives the quota of workers back that have ended, or that an elastic job does not want any more.

    The quota of a launcher is given back with the end of the job.
    """
    job, phase = context.job, context.job.status.phase
    if not workload.is_admitted or Role.WORKER not in workload.pod_sets:
        return WorkloadPlan()
    used = sum(pod.role is Role.WORKER and pod.is_active for pod in context.observed.pods)
    if phase is not Phase.TERMINATING:
        used = max(used, len(job.spec.worker_indices))
    if used >= workload.admitted_count(Role.WORKER):
        return WorkloadPlan()
    # Kueue counts from the requested pods, also if it has admitted fewer.
    count = workload.pod_sets[Role.WORKER].count - used
    counts = {**workload.reclaimable, Role.WORKER.value: count}
    status = {**workload.status, "reclaimablePods": [{"name": name, "count": n} for name, n in sorted(counts.items())]}
    return WorkloadPlan(status=status, effect="gave the quota of workers back")


def _has_other_priority(context: JobContext, workload: Workload) -> bool:
    """Whether the job names another priority class than the one that the priority of its Workload is from."""
    reference, stored = priority_reference(context.job), workload.priority_class
    source = workload.priority_source if workload.priority_source is not None else stored[1] if stored else ""
    return source != (reference["name"] if reference else "")


def _condition(type_: str, is_true: bool, reason: str, message: str, now: datetime) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True" if is_true else "False",
        "reason": reason,
        "message": message[:MAX_MESSAGE_CHARACTERS],
        "lastTransitionTime": rfc3339(now),
    }


def _changed(workload: Workload, changes: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """The conditions of the Workload with these changes; a condition that stays True or False keeps its time."""
    by_type = {str(one["type"]): one for one in workload.status.get("conditions") or ()}
    for change in changes:
        old = by_type.get(change["type"], {})
        kept = {"lastTransitionTime": old["lastTransitionTime"]} if old.get("status") == change["status"] else {}
        by_type[change["type"]] = {**change, **kept, "observedGeneration": workload.generation}
    return [*by_type.values()]
