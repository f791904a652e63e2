"""The heartbeats of jobs: reports of the watch of rank 0, each of which announces the next one."""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.silence import Heartbeat, Silence, silence

TICK_SECONDS = 1.0
# Until the next check while no job reports: then the network to this process may have failed.
LATER_SECONDS = 30.0


class Heartbeats:
    """Counts the time in which this process can receive reports, and stores the last heartbeat of each job."""

    def __init__(self) -> None:
        self.receiving_seconds = 0.0
        """Without the time in which the process is stopped or its event loop is busy; a new process begins with 0."""
        self._heartbeats: WeakKeyDictionary[JobState, Heartbeat] = WeakKeyDictionary()

    async def run(self) -> None:
        """Counts the time until the process ends."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            self.receiving_seconds += min(time.monotonic() - before, 2 * TICK_SECONDS)

    def record(self, state: JobState, pod_uid: str, attempt: int, next_within: float | None, at: datetime) -> None:
        """Records the report of a pod. Without `next_within`, the last announcement of the pod still applies."""
        known = self._heartbeats.get(state)
        if next_within is None:
            is_same = known is not None and (known.attempt, known.pod_uid) == (attempt, pod_uid)
            next_within = known.next_within if known and is_same else 0
        self._heartbeats[state] = Heartbeat(attempt, pod_uid, at, self.receiving_seconds, next_within)

    def seconds_since(self, state: JobState, attempt: int) -> float:
        """Time in which reports could be received, since the last heartbeat of this attempt."""
        heartbeat = self._heartbeats.get(state)
        return (
            self.receiving_seconds - heartbeat.receiving_seconds
            if heartbeat and heartbeat.attempt == attempt
            else float("inf")
        )

    def silence(self, state: JobState, pods: Iterable[Pod]) -> Silence | None:
        """The silence of a job."""
        found = ((other, heartbeat) for other, heartbeat in tuple(self._heartbeats.items()) if other is not state)
        others = (heartbeat for other, heartbeat in found if not other.is_deleted and heartbeat.is_about(other.job))
        return silence(state.job, self._heartbeats.get(state), others, pods, self.receiving_seconds)

    def due(self, state: JobState, now: datetime) -> datetime | None:
        """When the next heartbeat of a job is overdue; None if it has announced none."""
        heartbeat = self._heartbeats.get(state)
        if heartbeat is None or not heartbeat.is_about(state.job):
            return None
        left = heartbeat.seconds_left(self.receiving_seconds)
        return now + timedelta(seconds=left + TICK_SECONDS if left > 0 else LATER_SECONDS)
