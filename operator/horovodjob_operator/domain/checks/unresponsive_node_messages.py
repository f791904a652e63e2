"""Pods that do not end because their node does not respond, and what the user can do."""

from datetime import datetime, timedelta

from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.pod import Pod

# A kubelet that responds stops a pod within this time after its grace period.
OVERDUE_SECONDS = 10
TAINT = "node.kubernetes.io/out-of-service"


def overdue_at(context: JobContext, pod: Pod | None) -> datetime | None:
    """When the deletion of a terminating pod will be overdue; None if it is, or if the pod is not terminating."""
    if pod is None or pod.deletion_timestamp is None:
        return None
    return context.next_time(pod.deletion_timestamp + timedelta(seconds=OVERDUE_SECONDS))


def overdue_pod_message(context: JobContext, pod: Pod | None) -> str:
    """How to delete a pod that its node does not stop; empty if its deletion is not overdue."""
    if pod is None or pod.deletion_timestamp is None or overdue_at(context, pod):
        return ""
    return (
        f"waiting for pod {pod.name} to terminate, which node {pod.node} should have stopped by "
        f"{pod.deletion_timestamp:%H:%M:%SZ}: if that node does not respond, delete it or taint it {TAINT}"
    )


def silent_node_message(pod: Pod) -> str:
    """How to end a pod on a node that does not report; empty if its node reports."""
    if not pod.has_unready_node:
        return ""
    return (
        f"waiting for pod {pod.name} to end on node {pod.node}, which does not report to Kubernetes: if that machine "
        f"is off, delete the node or taint it {TAINT}"
    )
