"""The deadline of the whole job: runPolicy.activeDeadlineSeconds."""

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome


def deadline_exceeded(context: JobContext) -> Outcome | None:
    """The active time of all attempts exceeds the deadline; a suspended job is not active."""
    if context.deadline is None or context.now < context.deadline or context.job.spec.run_policy.suspend:
        return None
    seconds = context.job.spec.run_policy.active_deadline_seconds
    message = f"the job ran for longer than runPolicy.activeDeadlineSeconds: {seconds} s"
    return Outcome(Phase.TERMINATING, Reason.DEADLINE_EXCEEDED, message)
