"""Suspension and termination: the job gives up its pods, or ends, before its program does."""

from horovodjob.api.constants import Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.checks.unresponsive_node_messages import (
    overdue_at,
    overdue_pod_message,
    silent_node_message,
)
from horovodjob_operator.domain.pods.pod import Pod

TERMINATED_MESSAGE = "the job was ended: runPolicy.terminate is true"


def deadline_exceeded(context: JobContext) -> Outcome | None:
    """The active time of all attempts exceeds the deadline; a suspended job is not active."""
    if context.deadline is None or context.now < context.deadline or context.job.spec.run_policy.suspend:
        return None
    return Outcome(Phase.TERMINATING, Reason.DEADLINE_EXCEEDED, _deadline_message(context.job))


def _deadline_message(job: HorovodJob) -> str:
    """Why a job past its deadline ends; a job that is being suspended can have no deadline any more."""
    seconds = job.spec.run_policy.active_deadline_seconds
    limit = f": {seconds} s" if seconds else ""
    return f"the job ran for longer than runPolicy.activeDeadlineSeconds{limit}"


def suspended(context: JobContext) -> Outcome | None:
    """The user or a queue requests that the job has no pods."""
    if context.job.spec.run_policy.suspend:
        message = "runPolicy.suspend is true: no pods until it is false"
        return Outcome(Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, message, deletes_pods=True)
    return None


def resumed_with_quota(context: JobContext) -> Outcome | None:
    """A job that is resumed before its pods have ended gives its quota back first, as it does after a long pause.

    Otherwise it would start again with what its Workload still has, which for an elastic job can be less than it wants.
    """
    workload = context.queue.workload if context.queue else None
    if context.job.status.phase is not Phase.SUSPENDED or workload is None or not workload.has_reservation:
        return None
    if workload.is_prebuilt or workload.is_finished or not workload.is_active:
        return None  # It is not deleted.
    message = "the job is resumed: it gives its quota back with its last pod, and enters its queue again"
    return Outcome(Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, message, deletes_pods=True)


def spec_changed(context: JobContext) -> Outcome | None:
    """Pods of the attempt have another spec: the job was suspended, changed and resumed between two reconciliations."""
    job, attempt = context.job, context.job.status.attempt
    if job.metadata.generation == job.status.observed_generation:
        # Nobody has changed the spec: another release of the operator may have computed another hash of it.
        return None
    spec_hash = names.spec_hash(job)
    pods = (pod for pod in context.observed.pods if pod.attempt == attempt and not pod.is_terminating)
    if not any(pod.has_other_spec(spec_hash) for pod in pods):
        return None
    message = f"the job was suspended, changed and resumed: the pods of attempt {attempt} are replaced"
    return Outcome(Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, message, deletes_pods=True)


def pods_outdated(context: JobContext) -> Outcome | None:
    """Pods of an attempt that has not started cannot be used beside each other, and are replaced."""
    attempt, phase = context.job.status.attempt, context.job.status.phase
    outdated = (*context.pods_of_other_spec, *context.workers_of_other_release)
    if phase in (Phase.SUSPENDED, Phase.RUNNING) or not any(pod.attempt == attempt for pod in outdated):
        return None
    message = f"the pods of attempt {attempt}, of another spec or another release of the operator, are replaced"
    return Outcome(context.unscheduled_phase, Reason.WAITING_FOR_NODES, message, deletes_pods=True)


def terminating(context: JobContext) -> Outcome | None:
    """The job is Terminating; it is Failed when none of its pods is active."""
    stored = context.stored_reason
    if context.job.status.phase is not Phase.TERMINATING or stored is None:
        return None
    # Somebody can have edited it.
    reason = Reason.DEADLINE_EXCEEDED if stored[0] == Reason.DEADLINE_EXCEEDED else Reason.TERMINATED
    # Not the message of the status, which can contain the pod that the job waited for.
    message = _deadline_message(context.job) if reason is Reason.DEADLINE_EXCEEDED else TERMINATED_MESSAGE
    active = [pod for pod in context.observed.pods if pod.is_active]
    if not active:
        end = context.launcher.termination if context.launcher else None
        exit_code = end.exit_code if end and end.container == Role.LAUNCHER else None
        return Outcome(Phase.FAILED, reason, message, exit_code=exit_code)
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
