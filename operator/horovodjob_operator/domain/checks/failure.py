"""Failure: the current attempt cannot continue, so the job restarts or fails."""

from collections.abc import Callable, Iterable

from horovodjob.api.constants import ConditionType, OnWorkerLoss, Phase, Reason
from horovodjob_operator.domain.checks import elastic, launcher_failure, worker_failure
from horovodjob_operator.domain.checks.backoff import disruption_text, restart_delay
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.job_errors import errors_after

FAILURE_CHECKS: tuple[Callable[[JobContext], Iterable[Failure]], ...] = (
    # Workers precede the launcher: mpirun fails when a worker does, and the worker has the cause.
    worker_failure.worker_failed,
    worker_failure.worker_lost,
    elastic.too_few_workers,
    launcher_failure.launcher_lost,
    # The launcher names the workers that it cannot reach, which explains its own exit code.
    worker_failure.worker_unreachable,
    launcher_failure.launcher_failed,
)


def attempt_failed(context: JobContext) -> Outcome | None:
    """The current attempt cannot continue: the job restarts, or fails if its policy allows no restart."""
    failure = next((failure for check in FAILURE_CHECKS for failure in check(context)), None)
    if failure is None:
        return None
    status, policy = context.job.status, context.job.spec.run_policy
    limit = policy.backoff_limit
    if failure.is_disruption and failure.is_worker_loss and policy.on_worker_loss is OnWorkerLoss.FAIL:
        message = f"{failure.message} (attempt {status.attempt}; runPolicy.onWorkerLoss is {policy.on_worker_loss})"
        return Outcome(Phase.FAILED, failure.reason, message, failure=failure)
    if not failure.is_disruption and status.restarts >= limit:
        message = f"{failure.reason}: {failure.message} (attempt {status.attempt}; runPolicy.backoffLimit is {limit})"
        return Outcome(
            Phase.FAILED, Reason.BACKOFF_LIMIT_EXCEEDED, message, failure=failure, exit_code=failure.exit_code
        )
    message = _restart_message(context, failure)
    return Outcome(Phase.RESTARTING, failure.reason, message, failure=failure, exit_code=failure.exit_code)


def _restart_message(context: JobContext, failure: Failure) -> str:
    """Why the attempt ended, how often in a row that was a disruption, and when the next attempt starts."""
    status = context.job.status
    errors = errors_after(context.job, failure, context.now.replace(microsecond=0))
    restarts = status.restarts + (not failure.is_disruption)
    row = disruption_text(errors, restarts) if failure.is_disruption else ""
    return (
        f"attempt {status.attempt} ended, {f'{row}, ' if row else ''}{failure.reason}: {failure.message}; attempt "
        f"{status.attempt + 1} starts at {errors[-1].time + restart_delay(errors, restarts):%H:%M:%SZ}"
    )


def evidence_pending(context: JobContext) -> Outcome | None:
    """The launcher has failed, and a worker may still report the cause: the state of the job stays."""
    launcher, status = context.launcher, context.job.status
    ready = status.condition(ConditionType.READY)
    if launcher is None or launcher.phase != "Failed" or status.phase is None or ready is None:
        return None
    until = launcher_failure.evidence_deadline(launcher, context.now)
    return Outcome(status.phase, ready.reason, ready.message, requeue_at=until)
