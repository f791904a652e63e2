"""Reads the events of autoscalers about pods that have no node: no object has this information."""

import logging
from datetime import datetime, timedelta

from horovodjob.api.constants import Phase
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.errors import Refused
from horovodjob_operator.kube.requests.reader import Reader

# The cluster autoscaler looks for pods without a node every ten seconds.
FIRST_SECONDS = 15
# The time between two reads doubles: a job that waits for hours costs little.
LONGEST_SECONDS = 300
WAITING_PHASES = (None, Phase.QUEUED, Phase.RESTARTING)
log = logging.getLogger("horovodjob.reconcile")


class AutoscalerEvents:
    """Keeps the newest event of an autoscaler about a job up to date while the job waits for nodes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, state: JobState, context: JobContext) -> Requeue:
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


def _due(pod: Pod, read_at: datetime | None, context: JobContext) -> datetime:
    """When to read: after a time that doubles, and before the job gives up."""
    created_at = pod.created_at or context.now
    if read_at is None:
        due = created_at + timedelta(seconds=FIRST_SECONDS)
    else:
        waited = max((read_at - created_at).total_seconds(), FIRST_SECONDS)
        due = read_at + timedelta(seconds=min(waited, LONGEST_SECONDS))
    deadline = context.scheduling_deadline
    return min(due, deadline) if deadline and (read_at is None or read_at < deadline) else due
