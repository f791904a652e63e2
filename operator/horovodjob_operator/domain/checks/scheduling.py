"""Scheduling: pods are created and get nodes, or their nodes are free for other jobs after a timeout."""

from datetime import datetime, timedelta

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.backoff import requeue_delay
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome

# A kubelet that responds stops a pod within this time after its grace period.
OVERDUE_SECONDS = 10


def creation_refused(context: JobContext) -> Outcome | None:
    """An object of the job cannot be created as the job specifies it."""
    refusal = context.observed.refusal
    if refusal is None or context.is_resizable:
        return None
    return Outcome(
        context.unscheduled_phase,
        refusal.reason,
        refusal.message,
        is_stalled=refusal.is_stalled,
        requeue_at=refusal.retry_at,
    )


def scheduling_timeout(context: JobContext) -> Outcome | None:
    """Some pods had no node in time: all pods are deleted, so that other jobs can use their nodes."""
    if context.scheduling_deadline is None or context.now < context.scheduling_deadline:
        return None
    cause = overdue_pod_message(context) or _unschedulable_message(context)
    pods = [pod for pod in (context.launcher, *context.workers.values()) if pod and not pod.is_terminating]
    scheduled = sum(bool(pod.node) and pod.is_active for pod in pods)
    spec = context.job.spec
    message = (
        f"{scheduled} of {len(spec.worker_indices) + 1} pods had a node after scheduling.timeoutSeconds, "
        f"{spec.scheduling.timeout_seconds} s{f' ({cause})' if cause else ''}; {requeue_message(context)}"
    )
    unscheduled = next((pod for pod in pods if not pod.node), None)
    return requeue_outcome(Failure(Reason.SCHEDULING_TIMEOUT, message, unscheduled, is_disruption=True))


def requeue_outcome(failure: Failure) -> Outcome:
    """The state of a job with pods that do not start in time."""
    return Outcome(Phase.QUEUED, failure.reason, failure.message, failure=failure)


def requeue_message(context: JobContext) -> str:
    """What happens to the pods after a timeout, and when."""
    at = context.now + requeue_delay(context.job, context.job.status.attempt)
    return f"all pods are deleted, and created again at {at:%H:%M:%SZ}"


def waiting_for_nodes(context: JobContext) -> Outcome:
    """Some pods have no node yet."""
    cause = _unschedulable_message(context)
    message = overdue_pod_message(context)
    message = message or (f"waiting for nodes: {cause}" if cause else "the pods are being created and placed")
    return Outcome(context.unscheduled_phase, Reason.WAITING_FOR_NODES, message, requeue_at=overdue_at(context))


def overdue_at(context: JobContext) -> datetime | None:
    """When the deletion of a terminating pod will be overdue; None if it is, or if there is no such pod."""
    pod = context.terminating_pod
    if pod is None or pod.deletion_timestamp is None:
        return None
    at = pod.deletion_timestamp + timedelta(seconds=OVERDUE_SECONDS)
    return at if at > context.now else None


def overdue_pod_message(context: JobContext) -> str:
    """How to delete a pod that its node does not stop; empty if no deletion is overdue."""
    pod = context.terminating_pod
    if pod is None or pod.deletion_timestamp is None or overdue_at(context):
        return ""
    return (
        f"waiting for pod {pod.name} to terminate, which node {pod.node} should have stopped by "
        f"{pod.deletion_timestamp:%H:%M:%SZ}: if that node does not respond, delete it or taint it "
        "node.kubernetes.io/out-of-service"
    )


def _unschedulable_message(context: JobContext) -> str:
    """A message of the scheduler; those that count nodes precede those of pods that wait for their gang."""
    messages = [pod.unschedulable_message for pod in context.observed.pods if pod.unschedulable_message]
    return min(messages, key=lambda message: not message.startswith("0/"), default="")
