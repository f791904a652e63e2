"""When the watch of rank 0 of each job was heard last."""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.silence import Heard, Silence, silence

TICK_SECONDS = 1.0
# The next look at a silence that cannot be judged, because no other job is heard either.
LATER_SECONDS = 30.0


class Hearing:
    """Counts the time in which this process listens to reports, and keeps the last report of each job."""

    def __init__(self) -> None:
        self.listened_seconds = 0.0
        """They do not pass while the process is stopped or its event loop is busy; a new process begins with 0."""
        self._heard: WeakKeyDictionary[JobState, Heard] = WeakKeyDictionary()

    async def run(self) -> None:
        """Counts the time until the process ends."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            self.listened_seconds += min(time.monotonic() - before, 2 * TICK_SECONDS)

    def hear(self, state: JobState, pod_uid: str, attempt: int, next_within: float | None, at: datetime) -> None:
        """Keeps that a pod has reported. A report without `next_within` leaves what was announced as it is."""
        known = self._heard.get(state)
        if next_within is None:
            is_same = known is not None and (known.attempt, known.pod_uid) == (attempt, pod_uid)
            next_within = known.next_within if known and is_same else 0
        self._heard[state] = Heard(attempt, pod_uid, at, self.listened_seconds, next_within)

    def seconds_since(self, state: JobState, attempt: int) -> float:
        """The listening time since rank 0 of this attempt was heard."""
        heard = self._heard.get(state)
        return self.listened_seconds - heard.listened_seconds if heard and heard.attempt == attempt else float("inf")

    def silence(self, state: JobState, pods: Iterable[Pod]) -> Silence | None:
        """The silence of a job."""
        found = ((other, heard) for other, heard in tuple(self._heard.items()) if other is not state)
        others = (heard for other, heard in found if not other.is_deleted and heard.is_about(other.job))
        return silence(state.job, self._heard.get(state), others, pods, self.listened_seconds)

    def due(self, state: JobState, now: datetime) -> datetime | None:
        """When the announced report of a job is overdue; None if it has announced none."""
        heard = self._heard.get(state)
        if heard is None or not heard.is_about(state.job):
            return None
        left = heard.seconds_left(self.listened_seconds)
        return now + timedelta(seconds=left + TICK_SECONDS if left > 0 else LATER_SECONDS)
