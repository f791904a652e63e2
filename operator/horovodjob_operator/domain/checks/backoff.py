"""Backoff: the delays between attempts, and between replacements of workers of an elastic job."""

import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from horovodjob.api.constants import Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import MAX_ERRORS, JobError
from horovodjob_operator.domain.checks.context import JobContext, is_credible
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.job_errors import is_disruption
from horovodjob_operator.domain.messages import ordinal

BASE_DELAY_SECONDS = 10
MAX_DELAY_SECONDS = 360
# A disruption after this time is not a repetition: one that comes once a day has the shortest delay.
LASTING_SECONDS = 600
# Times are whole seconds. The error of a lost worker must be older than the worker that replaces it.
MIN_REPLACEMENT_SECONDS = 1
BURST_SECONDS = 60


def restart_backoff(context: JobContext) -> Outcome | None:
    """An attempt has failed, and the delay before the next one is not over."""
    at = restart_at(context.job, context.now)
    if at is None or context.now >= at or context.launcher:
        return None
    # The failed attempt set the reason and the message, and they still apply.
    reason, message = context.stored_reason or (Reason.RANK_FAILED, "")
    return Outcome(Phase.RESTARTING, reason, message, requeue_at=at, creates_pods=False)


def reschedule_backoff(context: JobContext) -> Outcome | None:
    """The pods of the previous attempt had no nodes in time, and the delay before the next attempt is not over."""
    at = reschedule_at(context.job, context.now)
    if at is None or context.now >= at:
        return None
    _, message = context.stored_reason or ("", "")
    return Outcome(
        Phase.QUEUED, Reason.SCHEDULING_TIMEOUT, message, requeue_at=at, frees_nodes=True, creates_pods=False
    )


def backoff_delay(failures: int) -> timedelta:
    """Delay after this number of failures: 10 s, 20 s, 40 s ... 6 min."""
    return timedelta(seconds=min(BASE_DELAY_SECONDS * 2 ** min(max(failures - 1, 0), 10), MAX_DELAY_SECONDS))


def restart_at(job: HorovodJob, now: datetime) -> datetime | None:
    """When the next attempt of a Restarting job may start, counted from the error that ended the previous one."""
    errors = _credible(job.status.errors, now)
    if job.status.phase is not Phase.RESTARTING or not errors or errors[-1].attempt != job.status.attempt - 1:
        return None
    return errors[-1].time + restart_delay(errors, job.status.restarts)


def restart_delay(errors: Sequence[JobError], restarts: int) -> timedelta:
    """Delay after an attempt that the last of these errors ended.

    It grows with the failures of the job, and with disruptions that repeat before an attempt has lasted. A drained
    node evicts pods one after the other: they cause one restart, and count once.
    """
    return backoff_delay(max(restarts, disruptions_in_a_row(errors, restarts)))


def disruptions_in_a_row(errors: Sequence[JobError], restarts: int = 0) -> int:
    """How many of the newest attempts a disruption ended, each before it had lasted; 0 after a failure."""
    times: list[datetime] = []
    newest: JobError | None = None
    for error in reversed(list({error.attempt: error for error in errors}.values())):
        if not is_disruption(error) or (newest and error.attempt != newest.attempt - len(times)):
            break
        newest = newest or error
        times.insert(0, error.time)
    return _repetitions(times, restarts)


def disruption_text(errors: Sequence[JobError], restarts: int) -> str:
    """Which disruption in a row the last of these errors is: the second disruption in a row; empty for the first.

    The status has no room for more errors than a few, so a long row may have begun before the oldest of them.
    """
    number = disruptions_in_a_row(errors, restarts)
    is_whole_list = len(errors) == MAX_ERRORS and number == len({error.attempt for error in errors})
    return f"the {ordinal(number)}{' or a later' if is_whole_list else ''} disruption in a row" if number > 1 else ""


def replacement_at(job: HorovodJob, worker: str, now: datetime) -> datetime | None:
    """When an elastic job may create the pod of a worker again.

    A worker that ended by itself has a delay, which is that of all workers. A disrupted worker is replaced after
    a second, and after a growing delay if its disruptions repeat.
    """
    errors = [error for error in _credible(job.status.errors, now) if error.attempt == job.status.attempt]
    ends = [error for error in errors if _ended_by_itself(error)]
    times = [ends[-1].time + backoff_delay(len(ends))] if ends else []
    lost_at = [error.time for error in errors if error.pod == worker]
    if lost_at and (losses := worker_disruptions(job, worker)):
        delay = backoff_delay(losses - 1) if losses > 1 else timedelta(seconds=MIN_REPLACEMENT_SECONDS)
        times.append(max(lost_at) + delay)
    if len(errors) == MAX_ERRORS and errors[-1].time - errors[0].time < timedelta(seconds=BURST_SECONDS):
        # So many workers are lost that the status cannot contain which of them were lost before.
        times.append(errors[-1].time + backoff_delay(1))
    return max(times, default=None)


def worker_disruptions(job: HorovodJob, worker: str) -> int:
    """How many disruptions in a row a worker of the current attempt had, each before its pod had lasted."""
    errors = (error for error in job.status.errors if error.attempt == job.status.attempt and error.pod == worker)
    return _repetitions([error.time for error in errors if is_disruption(error)])


def _repetitions(times: Iterable[datetime], restarts: int = 0) -> int:
    """The length of the newest row of times, each within its delay and LASTING_SECONDS after the one before."""
    number, previous = 0, None
    for time in times:
        lasting = timedelta(seconds=LASTING_SECONDS) + backoff_delay(max(number, restarts))
        number = number + 1 if previous and time - previous < lasting else 1
        previous = time
    return number


def _credible(errors: Sequence[JobError], now: datetime) -> tuple[JobError, ...]:
    """The errors without those from a clock that was wrong: their times must delay nothing."""
    return tuple(error for error in errors if is_credible(error.time, now))


def _ended_by_itself(error: JobError) -> bool:
    return error.container == Role.WORKER and error.reason not in (Reason.EVICTED, Reason.NODE_LOST)


def reschedule_at(job: HorovodJob, now: datetime) -> datetime | None:
    """When the pods that were deleted after a scheduling timeout may be created again."""
    errors = _credible(job.status.errors, now)
    if not errors or errors[-1].reason != Reason.SCHEDULING_TIMEOUT or errors[-1].attempt != job.status.attempt - 1:
        return None
    return errors[-1].time + reschedule_delay(job, job.status.attempt - 1)


def reschedule_delay(job: HorovodJob, attempt: int) -> timedelta:
    """Delay after a scheduling timeout of this attempt: it grows with each consecutive timeout.

    It also differs between jobs. If two jobs wait for each other's nodes, one of them must be first.
    """
    timeouts = [(error.attempt, error.reason == Reason.SCHEDULING_TIMEOUT) for error in job.status.errors]
    # Without the oldest error that the status no longer contains when it has that of this timeout.
    earlier = [timeout for timeout in timeouts if timeout != (attempt, True)][1 - MAX_ERRORS :]
    attempts = {number for number, is_timeout in earlier if is_timeout} | {attempt}
    consecutive = next(number for number in range(1, len(attempts) + 2) if attempt - number not in attempts)
    jitter = zlib.crc32(f"{job.metadata.uid}/{attempt}".encode()) / 2**32
    return timedelta(seconds=round(backoff_delay(consecutive).total_seconds() * (0.5 + jitter)))
