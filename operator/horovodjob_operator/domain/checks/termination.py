"""Termination: the job ends before its program does."""

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.deadline import deadline_message
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.checks.unresponsive_node import overdue_at, overdue_pod_message, silent_node_message
from horovodjob_operator.domain.pods.pod import Pod

TERMINATED_MESSAGE = "the job was ended: runPolicy.terminate is true"


def terminating(context: JobContext) -> Outcome | None:
    """The job is Terminating; it is Failed when none of its pods is active."""
    ready = context.job.status.condition(ConditionType.READY)
    if context.job.status.phase is not Phase.TERMINATING or ready is None:
        return None
    reason = Reason(ready.reason)
    # Not the message of the status, which can contain the pod that the job waited for.
    message = deadline_message(context.job) if reason is Reason.DEADLINE_EXCEEDED else TERMINATED_MESSAGE
    active = [pod for pod in context.observed.pods if pod.is_active]
    if not active:
        end = context.launcher.termination if context.launcher else None
        return Outcome(Phase.FAILED, reason, message, exit_code=end.exit_code if end else None)
    if obstruction := _obstruction(context, active):
        message = f"{message}; {obstruction}"
    requeue_at = context.next_time(*(overdue_at(context, pod) for pod in active))
    return Outcome(Phase.TERMINATING, reason, message, requeue_at=requeue_at)


def _obstruction(context: JobContext, active: list[Pod]) -> str:
    """The pod and the node that prevent the job from ending, and what to do; empty if there is none."""
    terminating = ((pod.deletion_timestamp, pod.name, pod) for pod in active if pod.deletion_timestamp)
    oldest = min(terminating, default=None)
    silent = (silent_node_message(pod) for pod in sorted(active, key=lambda pod: pod.name))
    return overdue_pod_message(context, oldest[2] if oldest else None) or next(filter(None, silent), "")


def termination_requested(context: JobContext) -> Outcome | None:
    """The user requests that the job ends."""
    if context.job.spec.run_policy.terminate:
        return Outcome(Phase.TERMINATING, Reason.TERMINATED, TERMINATED_MESSAGE)
    return None
