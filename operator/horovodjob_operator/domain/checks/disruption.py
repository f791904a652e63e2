"""Failures that the platform or a user causes by ending a pod."""

from horovodjob.api.constants import Reason
from horovodjob_operator.domain.checks.outcome import Failure
from horovodjob_operator.domain.pods.pod import Pod


def disruption_failure(
    pod: Pod | None, subject: str, deletion_reason: Reason, name: str = "", *, is_worker_loss: bool = False
) -> Failure:
    """The disruption of a pod: an eviction if the platform reports one, else a deletion."""
    reason, message = _reason_and_message(pod, subject, deletion_reason)
    return Failure(reason, message, pod, name, is_disruption=True, is_worker_loss=is_worker_loss)


def _reason_and_message(pod: Pod | None, subject: str, deletion_reason: Reason) -> tuple[Reason, str]:
    if pod and pod.has_lost_node:
        return Reason.NODE_LOST, f"{subject} was lost with its node {pod.node}, which no longer exists"
    if pod and pod.is_rejected:
        return Reason.EVICTED, f"{subject} was rejected by node {pod.node}: {pod.message or pod.reason}"
    if pod and pod.is_evicted and (cause := pod.message or pod.disruption or pod.reason):
        node = f" from node {pod.node}" if pod.node else ""
        return Reason.EVICTED, f"{subject} was evicted{node}: {cause}"
    return deletion_reason, f"{subject} was deleted"
