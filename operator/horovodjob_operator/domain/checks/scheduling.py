"""Scheduling: pods are created and get nodes, or their nodes are free for other jobs after a timeout."""

from horovodjob.api.constants import KUEUE_FRAMEWORK, KUEUE_POD_GATE, Phase, Reason
from horovodjob_operator.domain.checks.backoff import reschedule_delay
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.checks.unresponsive_node_messages import overdue_at, overdue_pod_message
from horovodjob_operator.domain.pods.observed import Refusal


def creation_refused(context: JobContext) -> Outcome | None:
    """An object of the job cannot be created: the job gives up its pods, and tries again."""
    refusal = context.observed.refusal
    return _refused(context, refusal) if refusal and context.gives_up_pods else None


def creation_failing(context: JobContext) -> Outcome | None:
    """An object of the job cannot be created for a reason that may pass at once, so its pods are kept."""
    refusal = context.observed.refusal
    if refusal is None or not refusal.keeps_pods or context.is_scheduled or context.is_resizable:
        return None
    return _refused(context, refusal)


def _refused(context: JobContext, refusal: Refusal) -> Outcome:
    return Outcome(
        context.unscheduled_phase,
        refusal.reason,
        refusal.message,
        is_stalled=refusal.is_stalled,
        requeue_at=None if refusal.waits_in_line else context.next_time(refusal.retry_at),
        deletes_pods=not refusal.keeps_pods,
    )


def scheduling_timeout(context: JobContext) -> Outcome | None:
    """Some pods had no node in time: all pods are deleted, so that other jobs can use their nodes."""
    if not context.is_scheduling_overdue or _may_nodes_come(context):
        return None
    cause = overdue_pod_message(context, context.terminating_pod) or _nodes_message(context)
    pods = [pod for pod in (context.launcher, *context.workers.values()) if pod and not pod.is_terminating]
    scheduled = sum(bool(pod.node) and pod.is_active for pod in pods)
    spec = context.job.spec
    message = (
        f"{scheduled} of {len(spec.worker_indices) + 1} pods had a node after scheduling.timeoutSeconds, "
        f"{spec.scheduling.timeout_seconds} s{f' ({cause})' if cause else ''}; {reschedule_message(context)}"
    )
    unscheduled = next((pod for pod in pods if not pod.node), None)
    return reschedule_outcome(Failure(Reason.SCHEDULING_TIMEOUT, message, unscheduled, is_disruption=True))


def reschedule_outcome(failure: Failure) -> Outcome:
    """The state of a job with pods that do not start in time."""
    return Outcome(Phase.QUEUED, failure.reason, failure.message, failure=failure)


def reschedule_message(context: JobContext) -> str:
    """What happens to the pods after a timeout, and when."""
    at = context.now + reschedule_delay(context.job, context.job.status.attempt)
    return f"all pods are deleted, and created again at {at:%H:%M:%SZ}"


def waiting_for_nodes(context: JobContext) -> Outcome:
    """Some pods have no node yet."""
    cause = _nodes_message(context)
    message = overdue_pod_message(context, context.terminating_pod)
    creating = "the pods are being created and placed"
    if context.observed.is_creation_slow:
        creating = "the pods are being created, which is slow: the API server, or an admission webhook that it calls, "
        creating += "takes seconds for a pod"
    message = message or (f"waiting for nodes: {cause}" if cause else creating)
    requeue_at = overdue_at(context, context.terminating_pod)
    return Outcome(context.unscheduled_phase, Reason.WAITING_FOR_NODES, message, requeue_at=requeue_at)


def _may_nodes_come(context: JobContext) -> bool:
    """Whether nodes may be on their way since this process, perhaps a new one, has last read events of autoscalers."""
    read_at, deadline = context.observed.autoscaler_read_at, context.scheduling_deadline
    is_outdated = read_at is None or deadline is None or read_at < deadline
    return context.observed.pod_awaiting_node is not None and is_outdated


def _nodes_message(context: JobContext) -> str:
    """Why pods have no node, and whether nodes come; empty if nothing is reported."""
    cause, event = _unschedulable_message(context), context.observed.autoscaler_event
    news = str(context.coming_nodes or (event.refusal if event else ""))
    return f"{cause.rstrip('.')}; {news}" if cause and news else cause or news


def _unschedulable_message(context: JobContext) -> str:
    """A message of the scheduler; those that count nodes precede those of pods that wait for their gang."""
    if gated := next((pod for pod in context.observed.pods if pod.has_kueue_gate and not pod.node), None):
        return (
            f"Kueue queues pod {gated.name} by itself, apart from its job (scheduling gate {KUEUE_POD_GATE}): "
            f"list {KUEUE_FRAMEWORK} in integrations.externalFrameworks of Kueue's configuration"
        )
    messages = [pod.unschedulable_message for pod in context.observed.pods if pod.unschedulable_message]
    return min(messages, key=lambda message: not message.startswith("0/"), default="")
