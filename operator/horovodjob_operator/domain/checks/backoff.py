"""Backoff: the delays between attempts, and between replacements of workers of an elastic job."""

import zlib
from datetime import datetime, timedelta

from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import JobError
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome

BASE_DELAY_SECONDS = 10
MAX_DELAY_SECONDS = 360


def restart_backoff(context: JobContext) -> Outcome | None:
    """An attempt has failed, and the delay before the next one is not over."""
    at = restart_at(context.job)
    if at is None or context.now >= at or context.launcher:
        return None
    # The failed attempt set the reason and the message, and they still apply.
    ready = context.job.status.condition(ConditionType.READY)
    reason, message = (Reason(ready.reason), ready.message) if ready else (Reason.RANK_FAILED, "")
    return Outcome(Phase.RESTARTING, reason, message, requeue_at=at)


def requeue_backoff(context: JobContext) -> Outcome | None:
    """The pods of the previous attempt had no nodes in time, and the delay before the next attempt is not over."""
    at = requeue_at(context.job)
    if at is None or context.now >= at:
        return None
    ready = context.job.status.condition(ConditionType.READY)
    return Outcome(Phase.QUEUED, Reason.SCHEDULING_TIMEOUT, ready.message if ready else "", requeue_at=at)


def backoff_delay(failures: int) -> timedelta:
    """Delay after this number of failures: 10 s, 20 s, 40 s ... 6 min."""
    return timedelta(seconds=min(BASE_DELAY_SECONDS * 2 ** min(max(failures - 1, 0), 10), MAX_DELAY_SECONDS))


def restart_at(job: HorovodJob) -> datetime | None:
    """When the next attempt of a Restarting job may start, counted from the error that ended the previous one.

    Disruptions do not increase the delay: a drained node evicts pods one after the other, and they cause one restart.
    """
    errors = job.status.errors
    if job.status.phase is not Phase.RESTARTING or not errors or errors[-1].attempt != job.status.attempt - 1:
        return None
    return errors[-1].time + backoff_delay(job.status.restarts)


def replacement_at(job: HorovodJob) -> datetime | None:
    """When an elastic job may replace a worker that ended by itself; a disrupted worker is replaced at once."""
    ends = [error for error in job.status.errors if error.attempt == job.status.attempt and _ended_by_itself(error)]
    return ends[-1].time + backoff_delay(len(ends)) if ends else None


def _ended_by_itself(error: JobError) -> bool:
    return error.container == Role.WORKER and error.reason not in (Reason.EVICTED, Reason.NODE_LOST)


def requeue_at(job: HorovodJob) -> datetime | None:
    """When the pods that were deleted after a scheduling timeout may be created again."""
    errors = job.status.errors
    if not errors or errors[-1].reason != Reason.SCHEDULING_TIMEOUT or errors[-1].attempt != job.status.attempt - 1:
        return None
    return errors[-1].time + requeue_delay(job, job.status.attempt - 1)


def requeue_delay(job: HorovodJob, attempt: int) -> timedelta:
    """Delay after a scheduling timeout of this attempt: it grows with each consecutive timeout.

    It also differs between jobs. If two jobs wait for each other's nodes, one of them must be first.
    """
    timeouts = {error.attempt for error in job.status.errors if error.reason == Reason.SCHEDULING_TIMEOUT} | {attempt}
    consecutive = next(number for number in range(1, len(timeouts) + 2) if attempt - number not in timeouts)
    jitter = zlib.crc32(f"{job.metadata.uid}/{attempt}".encode()) / 2**32
    return timedelta(seconds=round(backoff_delay(consecutive).total_seconds() * (0.5 + jitter)))
