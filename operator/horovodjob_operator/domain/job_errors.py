"""The errors of a job that its status contains, and the failure that ended it. Pure."""

from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import MAX_ERRORS, HorovodJobStatus, JobError
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.messages import MAX_MESSAGE_CHARACTERS
from horovodjob_operator.domain.pods.pod import ContainerTermination, Pod
from horovodjob_operator.domain.pods.termination_message import ended_hosts, termination_reason, unreachable_hosts
from horovodjob_operator.domain.program_output import failure_lines


def newest_errors(job: HorovodJob, outcome: Outcome, now: datetime) -> tuple[JobError, ...]:
    """The errors of the status and those of the outcome, as many as a status contains."""
    attempt, pod = job.status.attempt, outcome.blocked_pod
    errors = (*job.status.errors, *(failure_error(job, loss, _loss_time(loss, now)) for loss in outcome.worker_losses))
    if outcome.failure:
        errors = (*errors, failure_error(job, outcome.failure, now))
    elif pod and not any((error.reason, error.attempt) == (outcome.reason, attempt) for error in errors):
        errors = (*errors, _startup_error(attempt, outcome, pod, now))
    return errors[-MAX_ERRORS:]


def errors_after(job: HorovodJob, failure: Failure, now: datetime) -> tuple[JobError, ...]:
    """The errors of the status after this failure of the attempt."""
    return (*job.status.errors, failure_error(job, failure, now))[-MAX_ERRORS:]


def is_disruption(error: JobError) -> bool:
    """Whether the error shows a disruption: the container did not end by itself."""
    if error.reason in (Reason.EVICTED, Reason.NODE_LOST) or error.node_conditions:
        return True
    return error.reason in (Reason.WORKER_LOST, Reason.LAUNCHER_FAILED) and not error.container


def _loss_time(loss: Failure, now: datetime) -> datetime:
    """When a worker was lost: not before it was created, even if the clock of the API server is ahead.

    Otherwise, the error would be taken for one of an earlier worker, and reported without end.
    """
    created = loss.pod.created_at if loss.pod else None
    return max(now, created) if created else now


def _startup_error(attempt: int, outcome: Outcome, pod: Pod, now: datetime) -> JobError:
    """A pod that cannot start, reported once an attempt."""
    return JobError(
        time=now,
        attempt=attempt,
        pod=pod.name,
        node=pod.node,
        container=pod.waiting.container if pod.waiting else "",
        reason=outcome.reason,
        message=outcome.message[:MAX_MESSAGE_CHARACTERS],
    )


def failure_error(job: HorovodJob, failure: Failure, now: datetime) -> JobError:
    """The error of a failure of the current attempt."""
    pod, end = failure.pod, failure.pod.termination if failure.pod else None
    return JobError(
        time=now,
        attempt=job.status.attempt,
        pod=failure.failed_pod,
        node=pod.node if pod else "",
        container=end.container if end else "",
        reason=failure.reason,
        exit_code=end.exit_code if end else None,
        steps=failure.steps,
        failed_nodes=failure.nodes,
        node_conditions=failure.node_conditions,
        message=_message_with_log(failure, end),
    )


def _message_with_log(failure: Failure, end: ContainerTermination | None) -> str:
    """The failure and the last lines of the container's log; for a failed program, only the lines."""
    message = failure.message[:MAX_MESSAGE_CHARACTERS]
    # The failure already contains what a start script wrote.
    is_script_message = end is not None and (termination_reason(end) or unreachable_hosts(end) or ended_hosts(end))
    log = failure_lines(end.message) if end and not is_script_message else ""
    if not log:
        return message
    if failure.reason is Reason.RANK_FAILED:
        message = "; ".join(failure.node_conditions)
    separator = "; its last lines: " if message else ""
    remaining = MAX_MESSAGE_CHARACTERS - len(message) - len(separator)
    return f"{message}{separator}{log[-remaining:]}" if remaining > 0 else message


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The end of a failed job."""

    reason: str
    at: datetime


def job_failure(status: HorovodJobStatus) -> JobFailure | None:
    """The failure in a status; None if the job has not failed."""
    failed = status.condition(ConditionType.FAILED)
    if status.phase is not Phase.FAILED or failed is None or status.completion_time is None:
        return None
    return JobFailure(failed.reason, status.completion_time)
