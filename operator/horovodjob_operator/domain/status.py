"""The status to report."""

from collections.abc import Iterable
from datetime import datetime

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
    NEWEST_ERRORS,
    Condition,
    HorovodJobStatus,
    JobError,
    ReplicaStatus,
    ReplicaStatuses,
    Training,
)
from horovodjob_operator import start_scripts
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.table import Failure, Finding, Look, find
from horovodjob_operator.domain.observed import End, Observed, Pod, Refusal, told_reason, unreachable_hosts
from horovodjob_operator.domain.progress_report import Report

MESSAGE_CHARACTERS = 2048

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

# Which conditions are True in a phase; Prepared depends on the workers, Stalled also on the finding.
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


def next_status(job: HorovodJob, observed: Observed, *, now: datetime) -> tuple[HorovodJobStatus, Finding | None]:
    """Status to report after this look at the cluster, and what was found.

    A finished job keeps its status for ever: its pods may already be gone, and their absence says nothing. Only the
    observed generation follows the spec, or kstatus would wait for a change such as of ttlSecondsAfterFinished.
    Without news the result equals `job.status`, so writing on inequality is enough.
    """
    if job.status.finished:
        return job.status.model_copy(update={"observed_generation": job.metadata.generation}), None
    if observed.refusal and observed.refusal.unreadable and job.status.phase:
        return _stalled(job, observed.refusal, now.replace(microsecond=0)), None
    finding = find(job, observed, now=now)
    return _status(job, observed, finding, now.replace(microsecond=0)), finding


def _status(job: HorovodJob, observed: Observed, finding: Finding, now: datetime) -> HorovodJobStatus:
    old, phase = job.status, finding.phase
    counts = _replica_statuses(job, observed, phase)
    replicas = [counts.worker, *([counts.launcher] if job.spec.launcher.as_worker else [])]
    failure = finding.failure
    retries = (failure,) if failure and phase is Phase.RESTARTING else ()
    released = failure is not None and phase is Phase.QUEUED
    ends = phase in (Phase.TERMINATING, Phase.FAILED)
    resumes = old.phase is Phase.SUSPENDED and phase is not Phase.SUSPENDED and not ends
    suspends = phase is Phase.SUSPENDED and old.phase is not Phase.SUSPENDED
    started = phase is not Phase.SUSPENDED and (old.start_time is not None or not ends)
    fresh = bool(retries) or released or (suspends and bool(observed.pods))
    running_time = (old.running_time or now) if phase is Phase.RUNNING else old.running_time
    return HorovodJobStatus(
        observed_generation=job.metadata.generation,
        phase=phase,
        execution_state=EXECUTION_STATES[phase],
        conditions=_conditions(job, finding, prepared=_prepared(Look(job, observed, now), phase), now=now),
        start_time=(now if resumes else old.start_time or now) if started else None,
        active_seconds=old.active_seconds + (_seconds_since(old.start_time, now) if suspends else 0),
        running_time=None if fresh else running_time,
        completion_time=now if phase.finished else None,
        # Pods carry the attempt they were made for, so those that are on their way out are never mistaken for new ones.
        attempt=max(old.attempt, 1) + (1 if fresh else 0),
        restarts=old.restarts + sum(not failed.taken for failed in retries),
        preemptions=old.preemptions + sum(lost.taken and lost.who != "" for lost in (*finding.losses, *retries)),
        exit_code=old.exit_code if finding.exit_code is None else finding.exit_code,
        replicas=sum(count.active for count in replicas),
        selector=names.selector(job, Role.WORKER),
        replica_statuses=counts,
        workers_ready=f"{sum(count.ready for count in replicas)}/{job.spec.worker.replicas}",
        output_path_segment=names.output_path_segment(job),
        start_scripts=start_scripts.VERSION if old.phase is None else old.start_scripts,
        errors=_errors(job, finding, now),
        training=None if resumes else _training(old, observed.report),
    )


def _seconds_since(start: datetime | None, now: datetime) -> int:
    return max(0, round((now - start).total_seconds())) if start else 0


def _stalled(job: HorovodJob, refusal: Refusal, now: datetime) -> HorovodJobStatus:
    """The status of a job with a spec that this version cannot read: as it was, but Stalled."""

    def changed(condition: Condition) -> Condition:
        stalled = condition.type is ConditionType.STALLED
        if not stalled and condition.type is not ConditionType.RECONCILING:
            return condition
        status = "True" if stalled else "False"
        return condition.model_copy(
            update={
                "status": status,
                "observed_generation": job.metadata.generation,
                "last_transition_time": condition.last_transition_time if condition.status == status else now,
                "reason": refusal.reason,
                "message": refusal.message[:MESSAGE_CHARACTERS] if stalled else "",
            }
        )

    conditions = tuple(map(changed, job.status.conditions))
    return job.status.model_copy(update={"observed_generation": job.metadata.generation, "conditions": conditions})


def _training(old: HorovodJobStatus, report: Report | None) -> Training | None:
    """What the present attempt told last; until it tells something, what the one before did."""
    return report.training if report and report.attempt == old.attempt else old.training


def _errors(job: HorovodJob, finding: Finding, now: datetime) -> tuple[JobError, ...]:
    attempt = job.status.attempt
    errors = (*job.status.errors, *(_error(job, loss, now) for loss in finding.losses))
    if finding.failure:
        errors = (*errors, _error(job, finding.failure, now))
    elif finding.pod and not any((error.reason, error.attempt) == (finding.reason, attempt) for error in errors):
        errors = (*errors, _start_error(attempt, finding, finding.pod, now))
    return errors[-NEWEST_ERRORS:]


def _start_error(attempt: int, finding: Finding, pod: Pod, now: datetime) -> JobError:
    """A pod that cannot start, told once an attempt."""
    return JobError(
        time=now,
        attempt=max(attempt, 1),
        pod=pod.name,
        node=pod.node,
        container=pod.waiting.container if pod.waiting else "",
        reason=finding.reason,
        message=finding.message[:MESSAGE_CHARACTERS],
    )


def _error(job: HorovodJob, failure: Failure, now: datetime) -> JobError:
    pod, end = failure.pod, failure.pod.end if failure.pod else None
    return JobError(
        time=now,
        attempt=job.status.attempt,
        pod=failure.who,
        node=pod.node if pod else "",
        container=end.container if end else "",
        reason=failure.reason,
        exit_code=end.exit_code if end else None,
        message=_with_last_lines(failure, end),
    )


def _with_last_lines(failure: Failure, end: End | None) -> str:
    """What happened, and what the container said at last; of a program that failed, only that."""
    said = failure.message[:MESSAGE_CHARACTERS]
    # What a start script left is in the failure's own words.
    told = end is not None and (told_reason(end) or unreachable_hosts(end))
    last = end.message.strip() if end and not told else ""
    if not last:
        return said
    if failure.reason is Reason.RANK_FAILED:
        return last[-MESSAGE_CHARACTERS:]
    between = "; its last lines: "
    room = MESSAGE_CHARACTERS - len(said) - len(between)
    return f"{said}{between}{last[-room:]}" if room > 0 else said


def _prepared(look: Look, phase: Phase) -> bool:
    if phase is Phase.RUNNING:
        return look.job.spec.elastic is None or len(look.hosts) >= look.job.spec.least_workers
    ready = sum(pod.ready and not pod.deleting for pod in look.workers.values())
    return phase is Phase.STARTING and ready == len(look.job.spec.worker_indices)


def _conditions(job: HorovodJob, finding: Finding, *, prepared: bool, now: datetime) -> tuple[Condition, ...]:
    true = set(TRUE_IN_PHASE[finding.phase])
    if prepared:
        true.add(ConditionType.PREPARED)
    if finding.stalled:
        true = (true | {ConditionType.STALLED}) - {ConditionType.RECONCILING}

    admitted = finding.phase in (Phase.STARTING, Phase.RUNNING)

    def condition(type_: ConditionType) -> Condition:
        old = job.status.condition(type_)
        status = "True" if type_ in true else "False"
        unchanged = old is not None and old.status == status
        return Condition(
            type=type_,
            status=status,
            observed_generation=job.metadata.generation,
            last_transition_time=old.last_transition_time if old and unchanged else now,
            reason=Reason.ADMITTED if type_ is ConditionType.QUEUED and admitted else finding.reason,
            message=finding.message[:MESSAGE_CHARACTERS] if type_ in true or type_ is ConditionType.READY else "",
        )

    return tuple(condition(type_) for type_ in ConditionType)


def _count(pods: Iterable[Pod]) -> ReplicaStatus:
    pods = tuple(pods)
    return ReplicaStatus(
        active=sum(pod.alive for pod in pods),
        ready=sum(pod.alive and pod.ready and not pod.deleting for pod in pods),
        succeeded=sum(pod.phase == "Succeeded" for pod in pods),
        failed=sum(pod.phase == "Failed" for pod in pods),
    )


def _replica_statuses(job: HorovodJob, observed: Observed, phase: Phase) -> ReplicaStatuses:
    """Pods by role and state; for a finished job as they are when its pods have been cleaned up."""
    launcher = _count(pod for pod in observed.pods if pod.role is Role.LAUNCHER)
    worker = _count(pod for pod in observed.pods if pod.role is Role.WORKER)
    if phase.finished and job.spec.run_policy.clean_pod_policy is not CleanPodPolicy.NONE:
        worker = worker.model_copy(update={"active": 0, "ready": 0})
        launcher = launcher.model_copy(update={"active": 0, "ready": 0, "failed": launcher.failed + launcher.active})
    return ReplicaStatuses(launcher=launcher, worker=worker)


def significant(old: HorovodJobStatus, new: HorovodJobStatus) -> bool:
    """Whether the change is worth a write at once; mere counts and words may wait for the next one."""

    def essence(status: HorovodJobStatus) -> tuple[object, ...]:
        active = status.replica_statuses.worker.active + status.replica_statuses.launcher.active
        conditions = {(c.type, c.status, c.reason) for c in status.conditions if c.type is not ConditionType.PREPARED}
        return (
            status.phase,
            status.observed_generation,
            status.attempt,
            status.errors,
            status.replicas if status.phase is Phase.RUNNING else None,
            conditions,
            status.phase is Phase.SUSPENDED and active == 0,
        )

    return essence(old) != essence(new)
