"""The deadline of the whole job: runPolicy.activeDeadlineSeconds."""

from horovodjob.api.constants import Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome


def deadline_exceeded(context: JobContext) -> Outcome | None:
    """The active time of all attempts exceeds the deadline; a suspended job is not active."""
    if context.deadline is None or context.now < context.deadline or context.job.spec.run_policy.suspend:
        return None
    return Outcome(Phase.TERMINATING, Reason.DEADLINE_EXCEEDED, deadline_message(context.job))


def deadline_message(job: HorovodJob) -> str:
    """Why a job past its deadline ends; a job that is being suspended can have no deadline any more."""
    seconds = job.spec.run_policy.active_deadline_seconds
    limit = f": {seconds} s" if seconds else ""
    return f"the job ran for longer than runPolicy.activeDeadlineSeconds{limit}"
