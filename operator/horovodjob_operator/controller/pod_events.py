"""Reads the events of kubelets and autoscalers about pods: no object has this information."""

import logging
from datetime import datetime, timedelta

from horovodjob.api.constants import Phase
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.observed import KubeletEventReason, KubeletWarning, Observed
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.errors import Refused
from horovodjob_operator.kube.requests.reader import Reader

# A pod gets its address when its volumes are mounted, usually within seconds after it is scheduled.
MOUNT_SECONDS = 20
REREAD_SECONDS = 60
# A kubelet repeats the event of a lasting cause at least every five minutes (client-go, EventSourceObjectSpamFilter).
RECENT_SECONDS = 600
# The cluster autoscaler looks for pods without a node every ten seconds.
FIRST_READ_SECONDS = 15
# The time between two reads doubles: a job that waits for hours costs little.
LONGEST_READ_SECONDS = 300
WAITING_PHASES = (None, Phase.QUEUED, Phase.RESTARTING)
log = logging.getLogger("horovodjob.reconcile")


class PodEvents:
    """Keeps up to date the newest events that explain why a job waits."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, state: JobState, context: JobContext) -> Requeue:
        """Reads the events that are due, and returns when the next are. Raises ClusterError."""
        return await self._read_kubelet(state, context) | await self._read_autoscaler(state, context)

    async def _read_kubelet(self, state: JobState, context: JobContext) -> Requeue:
        """Reads the events of a pod that does not start, and returns when to reconcile the job again."""
        now = context.now
        unexplained = None if context.job.status.is_finished else _unexplained_pod(context.observed, now)
        warning = state.kubelet_warning
        if unexplained is None or (warning and warning.reason is not unexplained[1]):
            state.kubelet_warning = state.kubelet_events_requested_at = None
        if unexplained is None:
            return Requeue()
        pod, reason, due = unexplained
        if state.kubelet_events_requested_at:
            due = max(due, state.kubelet_events_requested_at + timedelta(seconds=REREAD_SECONDS))
        if now < due:
            return Requeue(at=due)
        # A request that fails counts too.
        before, state.kubelet_events_requested_at = state.kubelet_warning, now
        since = now - timedelta(seconds=RECENT_SECONDS)
        message = await self._reader.kubelet_message(state.job.metadata.namespace, pod.uid, reason, since)
        state.kubelet_warning = KubeletWarning(reason, message) if message else None
        return Requeue(at=now + timedelta(seconds=REREAD_SECONDS), is_soon=state.kubelet_warning != before)

    async def _read_autoscaler(self, state: JobState, context: JobContext) -> Requeue:
        """Reads the events of a pod without a node, and returns when to reconcile the job again. Raises Unavailable."""
        pod = context.observed.pod_awaiting_node if context.job.status.phase in WAITING_PHASES else None
        if pod is None:
            state.autoscaler_event = state.autoscaler_read_at = None
            return Requeue()
        due = _due(pod, state.autoscaler_read_at, context)
        if context.now < due:
            return Requeue(at=due)
        before = state.autoscaler_event
        try:
            state.autoscaler_event = await self._reader.autoscaler_event(state.job.metadata.namespace, pod.uid)
        except Refused as error:  # The timeout must not wait for a right that the operator never gets.
            log.debug("%s/%s %s", *state.job.key, error)
        state.autoscaler_read_at = context.now
        is_news = state.autoscaler_event != before or context.is_scheduling_overdue
        return Requeue(at=_due(pod, context.now, context), is_soon=is_news)


def _unexplained_pod(observed: Observed, now: datetime) -> tuple[Pod, KubeletEventReason, datetime] | None:
    """A pod that does not start, the reason of the events that can explain it, and when to read them first."""
    if pod := observed.pod_awaiting_image:
        return pod, KubeletEventReason.PULL_SECRET_MISSING, now
    pod = observed.pod_awaiting_volumes
    if pod is None or pod.scheduled_at is None:
        return None
    return pod, KubeletEventReason.MOUNT_FAILED, pod.scheduled_at + timedelta(seconds=MOUNT_SECONDS)


def _due(pod: Pod, read_at: datetime | None, context: JobContext) -> datetime:
    """When to read: after a time that doubles, and before the job gives up."""
    created_at = pod.created_at or context.now
    if read_at is None:
        due = created_at + timedelta(seconds=FIRST_READ_SECONDS)
    else:
        waited = max((read_at - created_at).total_seconds(), FIRST_READ_SECONDS)
        due = read_at + timedelta(seconds=min(waited, LONGEST_READ_SECONDS))
    deadline = context.scheduling_deadline
    return min(due, deadline) if deadline and (read_at is None or read_at < deadline) else due
