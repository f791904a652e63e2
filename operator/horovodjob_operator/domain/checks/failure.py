"""Failure: the current attempt cannot continue, so the job restarts or fails."""

from collections.abc import Callable, Iterable

from horovodjob.api.constants import ConditionType, OnWorkerLoss, Phase, Reason
from horovodjob_operator.domain.checks import elastic, launcher_failure, worker_failure
from horovodjob_operator.domain.checks.backoff import backoff_delay
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome

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
    delay = backoff_delay(status.restarts + (not failure.is_disruption))
    message = (
        f"attempt {status.attempt} ended, {failure.reason}: {failure.message}; "
        f"attempt {status.attempt + 1} starts at {context.now + delay:%H:%M:%SZ}"
    )
    return Outcome(Phase.RESTARTING, failure.reason, message, failure=failure, exit_code=failure.exit_code)


def evidence_pending(context: JobContext) -> Outcome | None:
    """The launcher has failed, and a worker may still report the cause: the state of the job stays."""
    launcher, status = context.launcher, context.job.status
    ready = status.condition(ConditionType.READY)
    if launcher is None or launcher.phase != "Failed" or status.phase is None or ready is None:
        return None
    until = launcher_failure.evidence_deadline(launcher, context.now)
    return Outcome(status.phase, Reason(ready.reason), ready.message, requeue_at=until)
