"""Startup: pods have nodes and their containers start, or their nodes are free for other jobs after a timeout."""

from datetime import datetime, timedelta

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.blocked_pod import BlockedPod, find_blocked_pod
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.checks.scheduling import requeue_message, requeue_outcome
from horovodjob_operator.domain.messages import count_text


def startup_timeout(context: JobContext) -> Outcome | None:
    """A pod could not start in time: all pods are deleted, so that other jobs can use their nodes."""
    blocked = find_blocked_pod(context)
    if blocked is None or context.now < _startup_deadline(context, blocked):
        return None
    message = (
        f"pod {blocked.pod.name} could not start for scheduling.timeoutSeconds, "
        f"{context.job.spec.scheduling.timeout_seconds} s: {blocked.cause}; {requeue_message(context)}"
    )
    return requeue_outcome(Failure(Reason.SCHEDULING_TIMEOUT, message, blocked.pod, is_disruption=True))


def pod_cannot_start(context: JobContext) -> Outcome | None:
    """The kubelet cannot start a pod, and tries again."""
    blocked = find_blocked_pod(context)
    if blocked is None:
        return None
    return Outcome(
        context.startup_phase,
        blocked.reason,
        blocked.message,
        is_stalled=blocked.is_stalled,
        blocked_pod=blocked.pod,
        requeue_at=_startup_deadline(context, blocked),
    )


def pods_scheduled(context: JobContext) -> Outcome | None:
    """All pods have a node: images are pulled, workers are prepared and start to answer over ssh."""
    if not context.is_scheduled:
        return None
    if pod := next((pod for pod in context.workers.values() if pod.has_unready_node), None):
        message = f"waiting for node {pod.node} of pod {pod.name}, which does not report to Kubernetes"
        return Outcome(Phase.STARTING, Reason.WAITING_FOR_WORKERS, message)
    spec = context.job.spec
    unprepared = sum(not pod.is_ready for pod in context.workers.values()) + spec.launcher.as_worker
    if spec.preparation and unprepared:
        message = f"all pods have a node; {count_text(unprepared, 'worker')} not prepared yet"
        return Outcome(Phase.STARTING, Reason.PREPARATION_RUNNING, message)
    return Outcome(Phase.STARTING, Reason.WAITING_FOR_WORKERS, "all pods have a node; the workers start")


def _startup_deadline(context: JobContext, blocked: BlockedPod) -> datetime:
    """When the pods of the attempt lose their nodes: counted from its first error with this reason."""
    status = context.job.status
    errors = (error for error in status.errors if error.attempt == status.attempt)
    first = next((error.time for error in errors if error.reason == blocked.reason), context.now)
    return first + timedelta(seconds=context.job.spec.scheduling.timeout_seconds)
