"""Writes the status of a job, and posts the events of the change."""

from datetime import datetime, timedelta
from weakref import WeakSet

from horovodjob.api.constants import ConditionType
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.controller.event_poster import EventPoster
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.status import Urgency, stalled_conditions, status_with_error, urgency
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.logs import log_effect
from horovodjob_operator.metrics import count_transition

# A phase of the start that lasts for less than this is not written: a job that starts quickly has two status writes.
START_SECONDS = 1
# Of jobs that start at the same time, each phase lasts longer.
START_SECONDS_PER_JOB, LONGEST_START_SECONDS = 0.1, 30
# Changes of counts and messages alone are written at most this often.
COUNTS_SECONDS = 10


class StatusWriter:
    """Writes a status if it has changed."""

    def __init__(self, writer: Writer, events: EventPoster) -> None:
        self._writer, self._events = writer, events
        self._starting: WeakSet[JobState] = WeakSet()
        """Jobs with a phase that is held back."""

    async def write(self, state: JobState, status: HorovodJobStatus, now: datetime) -> datetime | None:
        """Writes the status, and returns None; or returns when to write it, if it can wait. Raises ClusterError."""
        job, old = state.job, state.job.status
        if state.error:
            status = status_with_error(status, state.error, now)
        if status == old:
            self._starting.discard(state)
            state.status_changed_at = None
            return None
        if (due := self._due(state, status, now)) and now < due:
            return due
        self._starting.discard(state)
        await self._send(state, status)
        state.status_written_at, state.status_changed_at = now, None
        self._events.post(job, events_between(job, old, status), now)
        count_transition(job, old, status)
        if status.phase is not old.phase:
            ready = status.condition(ConditionType.READY)
            log_effect(job, f"phase {old.phase or 'new'} -> {status.phase}: {ready.message if ready else ''}")
        return None

    def _due(self, state: JobState, status: HorovodJobStatus, now: datetime) -> datetime | None:
        state.status_changed_at = state.status_changed_at or now
        match urgency(state.job.status, status):
            case Urgency.START:
                self._starting.add(state)
                seconds = START_SECONDS + START_SECONDS_PER_JOB * (len(self._starting) - 1)
                return state.status_changed_at + timedelta(seconds=min(seconds, LONGEST_START_SECONDS))
            case Urgency.COUNTS if state.status_written_at:
                return state.status_written_at + timedelta(seconds=COUNTS_SECONDS)
            case _:
                return None

    async def write_error(self, state: JobState, error: str, now: datetime) -> None:
        """Writes an error that repeats and nothing else; it stays until `state.error` is empty. Raises ClusterError."""
        job = state.job
        if job.status.is_finished or state.unreadable_status is not None:
            return
        state.error = error
        status = status_with_error(job.status, error, now)
        if status != job.status:
            await self._send(state, status)
            log_effect(job, f"reported an error that repeats: {error}")

    async def _send(self, state: JobState, status: HorovodJobStatus) -> None:
        version = await self._writer.write_status(state.job, status)
        if version > state.version:  # Otherwise the watch has already reported it.
            metadata = state.job.metadata.model_copy(update={"resource_version": str(version)})
            state.version, state.job = version, state.job.model_copy(update={"metadata": metadata, "status": status})

    async def write_unreadable(self, state: JobState, now: datetime) -> None:
        """Sets Stalled in a status that this release cannot parse, and changes nothing else. Raises ClusterError."""
        if state.unreadable_status is None or state.refusal is None:
            return
        stored = tuple(state.unreadable_status.get("conditions") or ())
        conditions = stalled_conditions(stored, state.job.metadata.generation, state.refusal, now)
        if conditions != stored:
            await self._writer.write_conditions(state.job, conditions)
            log_effect(state.job, state.refusal.message)
