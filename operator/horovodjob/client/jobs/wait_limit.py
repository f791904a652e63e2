"""When a wait ends before what it waits for: after a time, or because only the user can correct the job."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from horovodjob.api.constants import ConditionType
from horovodjob.client.cluster.ticks import with_ticks
from horovodjob.client.cluster.watch import job_versions
from horovodjob.client.errors import Stalled, TimedOut
from horovodjob.client.jobs import batchai_records

Object = dict[str, Any]
# A Secret that is created just after the job stalls it for a moment.
STALLED_SECONDS = 15


class WaitLimit:
    """The limits of one wait, which begins now. `waits_for_stalled`: also for jobs that only the user can correct.

    Without that, the wait ends when a job has been stalled for `stalled_seconds`, by default 15.
    """

    def __init__(
        self,
        timeout: float | None = None,
        *,
        waits_for_stalled: bool = False,
        stalled_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout, self._waits_for_stalled, self._clock = timeout, waits_for_stalled, clock
        self._stalled_seconds = STALLED_SECONDS if stalled_seconds is None else stalled_seconds
        self._begin = clock()
        self._stalled: dict[str, float] = {}  # since when, by the UID of the job

    @property
    def has_time(self) -> bool:
        """Whether the user has set a time."""
        return self._timeout is not None

    def check_time(self, what: str) -> None:
        """Raises TimedOut."""
        if self._timeout is not None and self._clock() - self._begin >= self._timeout:
            raise TimedOut(f"{what} within {seconds_text(self._timeout)} (`timeout=`)")

    def check(self, *jobs: Object) -> None:
        """Raises Stalled if a job has been stalled for too long, and TimedOut. A job that has ended passes."""
        now = self._clock()
        unfinished = [job for job in jobs if not batchai_records.is_finished(job)]
        for job in unfinished:
            uid, condition = job["metadata"]["uid"], stalled_condition(job)
            if condition is None or self._waits_for_stalled:
                self._stalled.pop(uid, None)
            elif now - self._stalled.setdefault(uid, now) >= self._stalled_seconds:
                raise Stalled(
                    f"job {batchai_records.display_name(job)} cannot continue until you act: {condition['reason']}: "
                    f"{condition['message']}"
                )
        if unfinished:
            job = unfinished[0]
            phase = job.get("status", {}).get("phase") or "Queued"
            self.check_time(f"job {batchai_records.display_name(job)} did not end ({phase})")


def stalled_condition(job: Object) -> Object | None:
    """The condition of a job that cannot continue without a user action."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] == ConditionType.STALLED and condition["status"] == "True":
            return dict(condition)
    return None


def limited_versions(
    job: Object, limit: WaitLimit, tick: Callable[[Object], None] = lambda job: None
) -> Iterator[Object]:
    """The job now and after each change; `tick` gets it each second.

    Raises NotFound if the job is deleted, Stalled, TimedOut.
    """
    first = job
    for version in with_ticks(lambda: job_versions(first)):
        if version is not None:
            yield (job := version)
        limit.check(job)
        tick(job)


def seconds_text(seconds: float) -> str:
    """A time such as 1 h 30 min, 15 s."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{number:g} {unit}" for number, unit in parts if number) or "0 s"
