"""Reports of kubelets that come after the attempt was judged: they correct the error and what it counts as. Pure."""

from dataclasses import replace

from horovodjob.api.constants import Reason, Role
from horovodjob.api.status import Condition, JobError
from horovodjob_operator.domain.checks.backoff import restart_at
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.failure import worker_failure
from horovodjob_operator.domain.checks.outcome import Failure
from horovodjob_operator.domain.job_errors import failure_error
from horovodjob_operator.domain.pods.pod import Pod


def with_late_report(context: JobContext) -> JobContext:
    """The context with the cause of the last attempt's failure, if a kubelet has reported it since.

    On a busy node the report of an eviction can come after that of the launcher, whose mpirun it has ended.
    """
    status = context.job.status
    error = status.errors[-1] if status.errors else None
    if (
        error is None
        or error.reason != Reason.RANK_FAILED
        or error.node_conditions
        or error.attempt != status.attempt - 1
    ):
        return context
    pod = min((pod for pod in context.observed.pods if _explains(pod, error)), key=lambda pod: pod.index, default=None)
    if pod is None:
        return context
    failure = worker_failure(pod, pod.index)
    cause = failure_error(context.job, failure, error.time)
    cause = cause.model_copy(update={"attempt": error.attempt, "exit_code": error.exit_code})
    errors = (*status.errors[:-1], cause)
    counts = {
        "restarts": status.restarts - failure.is_disruption,
        "preemptions": status.preemptions + failure.is_disruption,
    }
    job = context.job.model_copy(update={"status": status.model_copy(update={"errors": errors} | counts)})
    at = restart_at(job, context.now)
    then = f"; attempt {status.attempt} starts at {at:%H:%M:%SZ}" if at else ""
    message = f"attempt {error.attempt} ended, {failure.reason}: {failure.message}{then}"
    conditions = tuple(_corrected(condition, failure, message) for condition in status.conditions)
    status = job.status.model_copy(update={"conditions": conditions})
    return replace(context, job=job.model_copy(update={"status": status}))


def _explains(pod: Pod, error: JobError) -> bool:
    """Whether a worker of the attempt had ended by itself, or by an eviction, when the launcher ended."""
    if pod.role is not Role.WORKER or pod.attempt > error.attempt or pod.is_active or pod.is_terminating:
        return False
    end = pod.termination.finished_at if pod.termination else None
    return end <= error.time if end else pod.is_evicted or pod.is_out_of_storage


def _corrected(condition: Condition, failure: Failure, message: str) -> Condition:
    if condition.reason != Reason.RANK_FAILED:
        return condition
    return condition.model_copy(update={"reason": failure.reason, "message": message if condition.message else ""})
