"""Termination: the job ends before its program does."""

from dataclasses import replace

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome


def terminating(context: JobContext) -> Outcome | None:
    """The job is Terminating; it is Failed when none of its pods is active."""
    ready = context.job.status.condition(ConditionType.READY)
    if context.job.status.phase is not Phase.TERMINATING or ready is None:
        return None
    outcome = Outcome(Phase.TERMINATING, Reason(ready.reason), ready.message)
    if any(pod.is_active for pod in context.observed.pods):
        return outcome
    end = context.launcher.termination if context.launcher else None
    return replace(outcome, phase=Phase.FAILED, exit_code=end.exit_code if end else None)


def termination_requested(context: JobContext) -> Outcome | None:
    """The user requests that the job ends."""
    if context.job.spec.run_policy.terminate:
        return Outcome(Phase.TERMINATING, Reason.TERMINATED, "the job was ended: runPolicy.terminate is true")
    return None
