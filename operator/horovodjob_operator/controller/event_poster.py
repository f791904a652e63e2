"""Posts the events of a job."""

from collections.abc import Callable
from datetime import datetime, timedelta

from horovodjob_operator.controller.job_log import log_warning
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.domain.events import recorded_events
from horovodjob_operator.errors import AlreadyExists, ClusterError, Unavailable
from horovodjob_operator.kube.request_queue import Priority
from horovodjob_operator.kube.writer import Writer

# Older events are not posted. The API server deletes events after an hour.
EVENT_SECONDS = 600
RETRY_SECONDS = 10


class EventPoster:
    """Posts each event once."""

    def __init__(self, writer: Writer, clock: Callable[[], datetime]) -> None:
        self._writer, self._clock, self._started_at = writer, clock, clock()

    def recover_events(self, state: JobState) -> None:
        """Adds recent events of a recorded status, if the process that wrote it may not have posted them.

        This is an earlier process, or this one if the response to the write was lost.
        """
        if not state.may_lack_events:
            return
        earliest = self._clock() - timedelta(seconds=EVENT_SECONDS)
        state.recover_events({event: event.since for event in recorded_events(state.job) if event.since > earliest})

    async def post(self, state: JobState) -> datetime | None:
        """Posts the pending events, and returns when to try again if some remain."""
        for number, (event, at) in enumerate(tuple((state.pending_events or {}).items())):
            # The next status of the job waits for its events, but new jobs must not wait for those of all others.
            priority = Priority.HIGH if at >= self._started_at else Priority.LOWEST
            try:
                await self._writer.post_event(state.job, event, at + timedelta(microseconds=number), priority)
            except AlreadyExists:
                pass  # It was posted before.
            except ClusterError as error:
                log_warning(state.job, f"event {event.reason} was not posted: {error}")
                retry_at = self._clock() + timedelta(seconds=RETRY_SECONDS)
                if isinstance(error, Unavailable) and retry_at < at + timedelta(seconds=EVENT_SECONDS):
                    return retry_at
            state.remove_event(event)
        return None
