"""The status of a job, computed from the outcome of the checks. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from typing import Any

from horovodjob.api.constants import (
    CleanPodPolicy,
    ConditionType,
    ExecutionState,
    Phase,
    Reason,
    Role,
)
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import (
    Condition,
    HorovodJobStatus,
    ReplicaStatus,
    ReplicaStatuses,
    Training,
)
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.checks.table import compute_outcome
from horovodjob_operator.domain.foreign_text import clean_text
from horovodjob_operator.domain.goodput import has_slow_rank_news, with_usage
from horovodjob_operator.domain.job_errors import newest_errors
from horovodjob_operator.domain.late_reports import with_late_report
from horovodjob_operator.domain.messages import MAX_MESSAGE_CHARACTERS
from horovodjob_operator.domain.pods.observed import Observed, Refusal
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.progress_report import ProgressReport
from horovodjob_operator.domain.stall import progressing
from horovodjob_operator.kueue.queue import queue_status
from horovodjob_operator.kueue.queue_checks import queue_note

EXECUTION_STATES = {
    Phase.QUEUED: ExecutionState.QUEUED,
    Phase.STARTING: ExecutionState.RUNNING,
    Phase.RUNNING: ExecutionState.RUNNING,
    Phase.RESTARTING: ExecutionState.QUEUED,
    Phase.SUSPENDED: ExecutionState.QUEUED,
    Phase.TERMINATING: ExecutionState.TERMINATING,
    Phase.SUCCEEDED: ExecutionState.SUCCEEDED,
    Phase.FAILED: ExecutionState.FAILED,
}

START_PHASES = (Phase.QUEUED, Phase.STARTING)

# The conditions that are True in a phase. Prepared also depends on the workers, Stalled on the outcome.
TRUE_IN_PHASE = {
    Phase.QUEUED: {ConditionType.QUEUED, ConditionType.RECONCILING},
    Phase.STARTING: {ConditionType.RECONCILING},
    Phase.RUNNING: {ConditionType.RUNNING, ConditionType.READY},
    Phase.RESTARTING: {ConditionType.RECONCILING},
    Phase.SUSPENDED: {ConditionType.SUSPENDED, ConditionType.READY},
    Phase.TERMINATING: {ConditionType.RECONCILING},
    Phase.SUCCEEDED: {ConditionType.SUCCEEDED, ConditionType.READY},
    Phase.FAILED: {ConditionType.FAILED, ConditionType.STALLED},
}


NOT_BY_PHASE = (ConditionType.QUOTA_RELEASED, ConditionType.PROGRESSING)


def next_status(context: JobContext) -> tuple[HorovodJobStatus, Outcome | None]:
    """Status to report after this reconciliation, and the outcome of the checks.

    A finished job keeps its status: its pods can be deleted already, and their absence has no meaning. Only the
    observed generation follows the spec. Otherwise kstatus would wait after a change such as of
    ttlSecondsAfterFinished. Without news the result equals `job.status`, so writing on inequality is enough.
    """
    job, observed, now = context.job, context.observed, context.now
    if job.status.is_finished:
        return job.status.model_copy(update={"observed_generation": job.metadata.generation}), None
    if observed.refusal and observed.refusal.is_unreadable and job.status.phase:
        return _stalled_status(job, observed.refusal, now.replace(microsecond=0)), None
    context = with_late_report(context)
    outcome = _with_queue_note(context, compute_outcome(context))
    status = _status(context, outcome, now.replace(microsecond=0))
    if status == job.status and not has_slow_rank_news(job, observed.usage):
        return status, outcome  # what the time was used for changes all the time, and is no reason to write
    return with_usage(job, status, observed, now), outcome


def _with_queue_note(context: JobContext, outcome: Outcome) -> Outcome:
    """The outcome with a message that also says how the queue limits a job that has quota."""
    note = "" if outcome.is_waiting or outcome.failure else queue_note(context)
    if not note or outcome.phase not in (*START_PHASES, Phase.RUNNING) or outcome.message.endswith(note):
        return outcome  # Some checks keep the message of the status.
    return replace(outcome, message=f"{outcome.message}; {note}")


class Urgency(Enum):
    """How soon a change of the status must be written."""

    NOW = auto()
    START = auto()
    """The job starts, and its next phase may follow at once."""
    COUNTS = auto()
    """Counts and messages alone."""


def urgency(old: HorovodJobStatus, new: HorovodJobStatus) -> Urgency:
    """How soon the change must be written."""
    if _waits_in_queue(new) and not old.queue:
        return Urgency.NOW  # Not the next phase of a start: the queue has no room, or cannot be entered.
    if _significant_part(old) == _significant_part(new):
        return Urgency.COUNTS
    is_start = old.phase in (None, *START_PHASES) and new.phase in START_PHASES
    is_observed = old.observed_generation in (-1, new.observed_generation)
    stalled = new.condition(ConditionType.STALLED)
    has_news = old.attempt != new.attempt or old.errors != new.errors or _is_true(stalled)
    return Urgency.START if is_start and is_observed and not has_news else Urgency.NOW


def _waits_in_queue(status: HorovodJobStatus) -> bool:
    """Whether the job waits in its queue, and it is known why."""
    ready = status.condition(ConditionType.READY)
    is_waiting = status.phase is Phase.QUEUED and status.start_time is None
    return is_waiting and ready is not None and ready.reason != Reason.QUEUED


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _significant_part(status: HorovodJobStatus) -> tuple[object, ...]:
    active = status.replica_statuses.worker.active + status.replica_statuses.launcher.active
    # A rank decides about Progressing, as about its progress: its reports must not cause more writes.
    others = (ConditionType.PREPARED, ConditionType.PROGRESSING)
    conditions = {(c.type, c.status, c.reason) for c in status.conditions if c.type not in others}
    return (
        status.phase,
        status.observed_generation,
        status.attempt,
        status.errors,
        status.replicas if status.phase is Phase.RUNNING else None,
        conditions,
        status.phase is Phase.SUSPENDED and active == 0,
    )


def _status(context: JobContext, outcome: Outcome, now: datetime) -> HorovodJobStatus:
    job, old, phase = context.job, context.job.status, outcome.phase
    counts = _replica_statuses(job, context.observed, phase)
    replicas = [counts.worker, *([counts.launcher] if job.spec.launcher.as_worker else [])]
    failure = outcome.failure
    restarts = (failure,) if failure and phase is Phase.RESTARTING else ()
    is_queued_again = failure is not None and phase is Phase.QUEUED
    is_ending = phase in (Phase.TERMINATING, Phase.FAILED)
    is_resumed = old.phase is Phase.SUSPENDED and phase is not Phase.SUSPENDED and not is_ending
    is_given_up = outcome.deletes_pods and any(pod.attempt == old.attempt for pod in context.observed.pods)
    # Neither the time of a suspension nor that in a queue counts.
    is_paused = phase is Phase.SUSPENDED or outcome.is_waiting or outcome.is_eviction
    has_started = not is_paused and (old.start_time is not None or not is_ending)
    is_new_attempt = bool(restarts) or is_queued_again or is_given_up
    running_time = (old.running_time or now) if phase is Phase.RUNNING else old.running_time
    disruptions = (failure for failure in (*outcome.worker_losses, *restarts) if failure.is_disruption)
    return HorovodJobStatus(
        observed_generation=job.metadata.generation,
        phase=phase,
        execution_state=EXECUTION_STATES[phase],
        conditions=(
            *_conditions(job, outcome, is_prepared=_is_prepared(context, phase), now=now),
            *filter(None, [progressing(job, context.observed, outcome, now)]),
        ),
        start_time=context.start_time.replace(microsecond=0) if has_started else None,
        active_seconds=old.active_seconds + (_seconds_since(old.start_time, now) if is_paused else 0),
        running_time=None if is_new_attempt else running_time,
        completion_time=now if phase.is_finished else None,
        # Pods have the label of the attempt that they were created for, so old terminating pods are distinguishable.
        attempt=old.attempt + (1 if is_new_attempt else 0),
        restarts=old.restarts + sum(not failure.is_disruption for failure in restarts),
        preemptions=old.preemptions + sum(failure.failed_pod != "" for failure in disruptions) + outcome.is_eviction,
        exit_code=old.exit_code if outcome.exit_code is None else outcome.exit_code,
        replicas=sum(count.active for count in replicas),
        selector=names.selector(job, Role.WORKER),
        replica_statuses=counts,
        workers_ready=f"{sum(count.ready for count in replicas)}/{job.spec.worker.replicas}",
        output_path_segment=names.output_path_segment(job),
        errors=newest_errors(job, outcome, now),
        queue=queue_status(context.observed.queue),
        training=_resumed_training(old) if is_resumed else _training(old, context.observed.progress_report),
    )


def _seconds_since(start: datetime | None, now: datetime) -> int:
    return max(0, round((now - start).total_seconds())) if start else 0


def _stalled_status(job: HorovodJob, refusal: Refusal, now: datetime) -> HorovodJobStatus:
    """The status of a job with a spec that this version cannot parse: unchanged, except for Stalled."""
    stored = tuple(condition.model_dump(mode="json", by_alias=True) for condition in job.status.conditions)
    conditions = stalled_conditions(stored, job.metadata.generation, refusal, now)
    parsed = tuple(Condition.model_validate(condition) for condition in conditions)
    return job.status.model_copy(update={"observed_generation": job.metadata.generation, "conditions": parsed})


def stalled_conditions(
    stored: tuple[Mapping[str, Any], ...], generation: int, refusal: Refusal, now: datetime
) -> tuple[Mapping[str, Any], ...]:
    """Stored conditions, with those that report an unreadable job; all others are unchanged."""
    values = {ConditionType.STALLED: ("True", refusal.message), ConditionType.RECONCILING: ("False", "")}
    return _changed_conditions(stored, generation, refusal.reason, values, now)


def status_with_error(status: HorovodJobStatus, error: str, now: datetime) -> HorovodJobStatus:
    """A status with an error that repeats as the reason of Ready: the operator continues to try.

    Ready stays True or False, because the error says nothing about the pods of the job.
    """
    ready = status.condition(ConditionType.READY)
    message = f"the operator cannot reconcile the job, and keeps trying: {clean_text(error)}"
    value = ready.status if ready else "False"
    return _with_condition(status, ConditionType.READY, value, Reason.RECONCILE_ERROR, message, now)


def status_with_held_quota(status: HorovodJobStatus, problem: str, now: datetime) -> HorovodJobStatus:
    """The last status of a job, with the problem because of which its Workload cannot be finished, if there is one."""
    type_ = ConditionType.QUOTA_RELEASED
    if not problem:
        others = tuple(condition for condition in status.conditions if condition.type is not type_)
        return status if others == status.conditions else status.model_copy(update={"conditions": others})
    message = f"the Workload cannot be finished, the operator keeps trying: {clean_text(problem)}"
    return _with_condition(status, type_, "False", Reason.QUEUE_UNAVAILABLE, message, now)


def _with_condition(
    status: HorovodJobStatus, type_: ConditionType, value: str, reason: Reason, message: str, now: datetime
) -> HorovodJobStatus:
    old = status.condition(type_)
    changed = Condition(
        type=type_,
        status=value,
        # Not the job's: `kubectl wait` takes a condition of the newest generation for the answer to the newest spec.
        observed_generation=status.observed_generation,
        last_transition_time=old.last_transition_time if old and old.status == value else now.replace(microsecond=0),
        reason=reason,
        message=message[:MAX_MESSAGE_CHARACTERS],
    )
    return status.model_copy(update={"conditions": (*(one for one in status.conditions if one is not old), changed)})


def _changed_conditions(
    stored: tuple[Mapping[str, Any], ...],
    generation: int,
    reason: Reason,
    values: Mapping[ConditionType, tuple[str, str]],
    now: datetime,
) -> tuple[Mapping[str, Any], ...]:
    by_type = {str(condition.get("type")): condition for condition in stored}
    for type_, (status, message) in values.items():
        before = by_type.get(type_, {})
        is_unchanged = before.get("status") == status and "lastTransitionTime" in before
        by_type[type_] = {
            "type": type_.value,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if is_unchanged else f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "reason": reason.value,
            "message": message[:MAX_MESSAGE_CHARACTERS],
        }
    return tuple(by_type.values())


def _training(old: HorovodJobStatus, report: ProgressReport | None) -> Training | None:
    """The newest progress of the current attempt; until there is one, that of the previous attempt."""
    return report.training(old.training) if report and report.attempt == old.attempt else old.training


def _resumed_training(old: HorovodJobStatus) -> Training | None:
    """The history and the best values alone: a resumed job has no progress before it reports again."""
    known = old.training
    if known is None or not (known.history or known.goodput):
        return None
    kept = {name: getattr(known, name) for name in ("history", "best", "extremes", "goodput")}
    return Training(progress=0, percent="0%", **kept)


def _is_prepared(context: JobContext, phase: Phase) -> bool:
    spec = context.job.spec
    if phase is Phase.RUNNING:
        return spec.elastic is None or len(context.hosts) >= spec.min_workers
    ready = sum(pod.is_ready and not pod.is_terminating for pod in context.workers.values())
    return phase is Phase.STARTING and ready == len(spec.worker_indices)


def _conditions(job: HorovodJob, outcome: Outcome, *, is_prepared: bool, now: datetime) -> tuple[Condition, ...]:
    true = set(TRUE_IN_PHASE[outcome.phase])
    if is_prepared:
        true.add(ConditionType.PREPARED)
    if outcome.is_stalled:
        true = (true | {ConditionType.STALLED}) - {ConditionType.RECONCILING}

    is_admitted = outcome.phase in (Phase.STARTING, Phase.RUNNING)

    def condition(type_: ConditionType) -> Condition:
        old = job.status.condition(type_)
        status = "True" if type_ in true else "False"
        generation, reason = job.metadata.generation, outcome.reason
        if type_ is ConditionType.QUEUED and is_admitted:
            reason = Reason.ADMITTED
        message = outcome.message[:MAX_MESSAGE_CHARACTERS] if type_ in true or type_ is ConditionType.READY else ""
        news = (status, generation, reason, message)
        if old and (old.status, old.observed_generation, old.reason, old.message) == news:
            return old
        return Condition(
            type=type_,
            status=status,
            observed_generation=generation,
            last_transition_time=old.last_transition_time if old and old.status == status else now,
            reason=reason,
            message=message,
        )

    return tuple(condition(type_) for type_ in ConditionType if type_ not in NOT_BY_PHASE)


def _replica_status(pods: Iterable[Pod]) -> ReplicaStatus:
    pods = tuple(pods)
    return ReplicaStatus(
        active=sum(pod.is_active for pod in pods),
        ready=sum(pod.is_active and pod.is_ready and not pod.is_terminating for pod in pods),
        succeeded=sum(pod.phase == "Succeeded" for pod in pods),
        failed=sum(pod.phase == "Failed" for pod in pods),
    )


def _replica_statuses(job: HorovodJob, observed: Observed, phase: Phase) -> ReplicaStatuses:
    """Pods by role and state; for a finished job, the numbers after its pods are cleaned up."""
    pods = [pod for pod in observed.pods if pod.node or not pod.is_active or not phase.is_finished]
    launcher = _replica_status(pod for pod in pods if pod.role is Role.LAUNCHER)
    worker = _replica_status(pod for pod in pods if pod.role is Role.WORKER)
    if phase.is_finished and job.spec.run_policy.clean_pod_policy is not CleanPodPolicy.NONE:
        worker = worker.model_copy(update={"active": 0, "ready": 0})
        launcher = launcher.model_copy(update={"active": 0, "ready": 0, "failed": launcher.failed + launcher.active})
    return ReplicaStatuses(launcher=launcher, worker=worker)
