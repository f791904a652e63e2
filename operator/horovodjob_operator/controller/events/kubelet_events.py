"""Reads kubelet events about pods that do not start, where they are the only explanation."""

from datetime import datetime, timedelta

from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.observed import KubeletEventReason, KubeletWarning, Observed
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.kube.requests.reader import Reader

# A pod gets its address when its volumes are mounted, usually within seconds after it is scheduled.
MOUNT_SECONDS = 20
REREAD_SECONDS = 60
# A kubelet repeats the event of a lasting cause at least every five minutes (client-go, EventSourceObjectSpamFilter).
RECENT_SECONDS = 600


class KubeletEvents:
    """Keeps the newest kubelet event of a job up to date."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, state: JobState, context: JobContext) -> Requeue:
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


def _unexplained_pod(observed: Observed, now: datetime) -> tuple[Pod, KubeletEventReason, datetime] | None:
    """A pod that does not start, the reason of the events that can explain it, and when to read them first."""
    if pod := observed.pod_awaiting_image:
        return pod, KubeletEventReason.PULL_SECRET_MISSING, now
    pod = observed.pod_awaiting_volumes
    if pod is None or pod.scheduled_at is None:
        return None
    return pod, KubeletEventReason.MOUNT_FAILED, pod.scheduled_at + timedelta(seconds=MOUNT_SECONDS)
