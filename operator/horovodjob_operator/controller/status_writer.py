"""Writes the status of a job."""

from collections.abc import Callable
from datetime import datetime, timedelta

from horovodjob.api.constants import ConditionType
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.controller.event_poster import EventPoster
from horovodjob_operator.controller.job_log import log_effect
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.status import is_significant, next_status
from horovodjob_operator.errors import Unavailable
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.writer import Writer
from horovodjob_operator.metrics import count_transition

# Changes of counts and messages alone are written at most this often, and less often if a request had to wait lately.
# So the start of a job has four status writes, whatever its size and the number of other jobs.
INSIGNIFICANT_SECONDS, BUSY_INSIGNIFICANT_SECONDS = 10, 60


class StatusWriter:
    """Computes the status of a job, and writes it if it has changed."""

    def __init__(
        self, pods: PodCache, writer: Writer, event_poster: EventPoster, clock: Callable[[], datetime]
    ) -> None:
        self._pods, self._writer, self._event_poster, self._clock = pods, writer, event_poster, clock

    async def write(self, state: JobState) -> tuple[JobContext, Outcome | None, datetime | None]:
        """Writes the status until it is stable.

        Returns the facts and the outcome of the checks that it is derived from, and when a deferred write is due.
        """
        has_written = False
        while True:
            job = state.job
            context = JobContext(job, state.observed(self._pods.of_job(job.key).values()), self._clock())
            status, outcome = next_status(context)
            if status == job.status:
                return context, outcome, None
            if due := self._deferred_until(state, status, context.now):
                return context, outcome, due
            if has_written:
                # A process that starts after the next write can no longer derive the events of the status before it.
                await self._event_poster.post(state)
                has_written = False
                continue  # The job can have changed meanwhile.
            await self._write(state, status, context.now)
            has_written = True

    def _deferred_until(self, state: JobState, status: HorovodJobStatus, now: datetime) -> datetime | None:
        if state.status_written_at is None or is_significant(state.job.status, status):
            return None
        seconds = BUSY_INSIGNIFICANT_SECONDS if self._writer.is_busy else INSIGNIFICANT_SECONDS
        due = state.status_written_at + timedelta(seconds=seconds)
        return due if now < due else None

    async def _write(self, state: JobState, status: HorovodJobStatus, now: datetime) -> None:
        """Writes the status, and records the transition to it."""
        job, old, known_version = state.job, state.job.status, state.version
        events = dict.fromkeys(events_between(job, old, status), now)
        if unrecorded := {event: at for event, at in events.items() if not event.is_recorded}:
            # First, because a process that starts after the write could not derive them.
            state.add_events(unrecorded)
            await self._event_poster.post(state)
        try:
            version = await self._writer.write_status(job, status)
        except Unavailable:
            # The watch may have reported the written status already.
            state.status_unconfirmed(known_version)
            raise
        state.status_written(status, version, now)
        state.add_events({event: at for event, at in events.items() if event.is_recorded})
        count_transition(job, old, status)
        if status.phase is not old.phase:
            ready = status.condition(ConditionType.READY)
            log_effect(job, f"phase {old.phase or 'new'} -> {status.phase}: {ready.message if ready else ''}")
