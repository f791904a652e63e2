"""What the time of a job was used for, and its slowest rank: from reports of rank 0 and the status. Pure."""

from collections.abc import Mapping
from datetime import datetime
from math import floor
from typing import NamedTuple

from horovodjob.api.constants import ConditionType, Phase
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import AttemptGoodput, Goodput, GoodputSeconds, HorovodJobStatus, SlowestRank, Training
from horovodjob.lost_time import slow_rank_text
from horovodjob_operator.domain.checks.backoff import restart_at
from horovodjob_operator.domain.pods.observed import Observed
from horovodjob_operator.domain.stall import current_stall, is_of_deputy
from horovodjob_operator.domain.stall_report import ReportedSeconds, UsageReport

REPORTED = tuple(ReportedSeconds.model_fields)
"""The causes that a program knows; the operator knows the others."""
EMPTY = GoodputSeconds()


def with_usage(job: HorovodJob, status: HorovodJobStatus, observed: Observed, now: datetime) -> HorovodJobStatus:
    """A status that differs from that of the job, with what its time was used for until now."""
    known = status.training.goodput if status.training else None
    if (observed.usage is None and known is None) or (job.status.phase is status.phase is Phase.QUEUED):
        return status
    training = status.training or Training(progress=0)
    goodput = _goodput(job, status, _usage(job, observed, now), now)
    news = {"goodput": goodput, "slowest_rank": _slowest(job, status, observed)}
    return status.model_copy(update={"training": training.model_copy(update=news)})


def _usage(job: HorovodJob, observed: Observed, now: datetime) -> UsageReport | None:
    """The newest report about the attempt of the job, with the time of a stall that a silent rank 0 cannot report."""
    usage, stall = observed.usage, current_stall(job, observed)
    if stall is None or not is_of_deputy(observed):
        return usage
    heard = max(stall.since, observed.silence.since) if observed.silence else stall.since
    silent_seconds = max((now - heard).total_seconds(), 0)
    if usage:
        seconds = usage.seconds.model_copy(update={"stalled": usage.seconds.stalled + silent_seconds})
        return usage.model_copy(update={"seconds": seconds})
    stored = job.status.training.goodput if job.status.training else None
    if stored is None or stored.attempt.number != job.status.attempt:
        return None
    known = {name: float(getattr(stored.attempt.seconds, name)) for name in REPORTED}
    seconds = ReportedSeconds(**known | {"stalled": max(known["stalled"], silent_seconds)})
    return UsageReport(seconds=seconds, steps=stored.attempt.steps, first_step=stored.attempt.first_step)


def _goodput(job: HorovodJob, status: HorovodJobStatus, usage: UsageReport | None, now: datetime) -> Goodput:
    """The causes of the time of the job. Their sum is this time, whatever a program reports."""
    stored = status.training.goodput if status.training else None
    known = stored or Goodput(percent=0, attempt=AttemptGoodput(number=job.status.attempt, percent=0))
    queued = (stored.queued_seconds if stored else _first_queue(job)) + _ended_queue(job, status, now)
    seconds = known.seconds.model_dump(exclude={"starting"})
    total = max(_active_seconds(status, now) - queued, sum(seconds.values()))  # the clock can have been set back
    seconds["restart_delay"] += _ended_delay(job, status, now)
    attempt, kept = known.attempt, _kept_steps(known)
    if usage:
        is_same = known.attempt.number == job.status.attempt
        attempt = _attempt(job.status.attempt, usage, total)
        if attempt.first_step is not None:
            if not is_same or known.attempt.first_step is None:
                lost = _lost_seconds(seconds["steps"], kept, attempt.first_step)
                seconds["steps"] -= lost
                seconds["lost_steps"] += lost
            kept = Steps(
                attempt.first_step if kept.first is None else min(kept.first, attempt.first_step), attempt.steps
            )
        _add_reported(seconds, known.attempt.seconds if is_same else EMPTY, attempt.seconds, total)
    seconds["starting"] = max(total - sum(seconds.values()), 0)
    return Goodput(
        percent=_percent(seconds["steps"], sum(seconds.values())),
        seconds=GoodputSeconds(**seconds),
        queued_seconds=queued,
        first_step=kept.first,
        steps=kept.last,
        attempt=attempt,
    )


def _attempt(number: int, usage: UsageReport, most: int) -> AttemptGoodput:
    reported = {name: getattr(usage.seconds, name) for name in REPORTED}
    return AttemptGoodput(
        number=number,
        percent=_percent(usage.seconds.steps, sum(reported.values())),
        seconds=GoodputSeconds(**_limited(reported, most)),
        steps=usage.steps,
        first_step=usage.first_step,
    )


def _limited(seconds: Mapping[str, float], most: int) -> dict[str, int]:
    """Whole seconds with a sum of at most `most`: a program cannot have used more time than has passed."""
    total = sum(seconds.values())
    if total <= max(most - len(seconds) / 2, 0):  # room for what rounding adds
        return {name: round(value) for name, value in seconds.items()}
    return {name: floor(value * min(most / total, 1)) for name, value in seconds.items()}


def _add_reported(seconds: dict[str, int], before: GoodputSeconds, after: GoodputSeconds, most: int) -> None:
    """Adds what an attempt has reported since the report before."""
    changes = {name: getattr(after, name) - getattr(before, name) for name in REPORTED}
    if sum(changes.values()) < 0:
        return  # Rank 0 of an elastic job is another process: its next report is compared with this one.
    for name, change in changes.items():
        seconds[name] = max(seconds[name] + min(change, 0), 0)
    additions = {name: change for name, change in changes.items() if change > 0}
    for name, addition in _limited(additions, max(most - sum(seconds.values()), 0)).items():
        seconds[name] += addition


class Steps(NamedTuple):
    """The steps that were kept: the number of the one before the first, if it is known, and of the last."""

    first: int | None
    last: int


def _kept_steps(known: Goodput) -> Steps:
    if known.first_step is None:  # An earlier release has written those of the attempt alone.
        return Steps(known.attempt.first_step, known.attempt.steps)
    return Steps(known.first_step, known.steps)


def _lost_seconds(seconds: int, kept: Steps, first_step: int) -> int:
    """The time of the steps that were kept so far, and that an attempt from this step does again."""
    if kept.first is None or kept.last <= kept.first:
        return 0
    share = (kept.last - max(first_step, kept.first)) / (kept.last - kept.first)
    return max(round(seconds * share), 0)


def _active_seconds(status: HorovodJobStatus, now: datetime) -> int:
    """Since the job was admitted by its queue, without suspensions."""
    return status.active_seconds + _seconds_between(status.start_time, status.completion_time or now)


def _first_queue(job: HorovodJob) -> int:
    """How long the pods of a job without earlier reports have waited for nodes."""
    queued = job.status.condition(ConditionType.QUEUED)
    return _seconds_between(job.status.start_time, queued.last_transition_time) if queued else 0


def _ended_queue(job: HorovodJob, status: HorovodJobStatus, now: datetime) -> int:
    """How long pods have waited for nodes, if that ends with this change."""
    queued, start = job.status.condition(ConditionType.QUEUED), job.status.start_time
    if job.status.phase is not Phase.QUEUED or status.phase is Phase.QUEUED or queued is None or start is None:
        return 0
    return _seconds_between(max(queued.last_transition_time, start), now)


def _ended_delay(job: HorovodJob, status: HorovodJobStatus, now: datetime) -> int:
    """The delay before a restart, if it ends with this change: by the restart, or before it."""
    if status.phase is Phase.RESTARTING or (at := restart_at(job, now)) is None:
        return 0
    return _seconds_between(job.status.errors[-1].time, min(at, now))


def _seconds_between(start: datetime | None, end: datetime) -> int:
    return max(round((end - start).total_seconds()), 0) if start else 0


def _percent(part: float, total: float) -> float:
    return round(min(100 * part / total, 100.0), 1) if total > 0 else 0.0


def _slowest(job: HorovodJob, status: HorovodJobStatus, observed: Observed) -> SlowestRank | None:
    if status.phase is not Phase.RUNNING or status.attempt != job.status.attempt:
        return None
    if observed.usage is None:  # A new operator has no report yet.
        return status.training.slowest_rank if status.training else None
    found = observed.usage.slowest_rank
    if found is None:
        return None
    node = next((pod.node for pod in observed.pods if pod.name == found.pod), "")
    return SlowestRank(rank=found.rank, pod=found.pod, node=node, ratio=found.ratio, section=found.section)


def gpu_seconds(job: HorovodJob, status: HorovodJobStatus) -> dict[str, int]:
    """The GPU seconds of a job by cause."""
    goodput = status.training.goodput if status.training else None
    gpus = job.spec.worker.gpus * job.spec.worker.replicas
    if goodput is None or not gpus:
        return {}
    return {name: gpus * seconds for name in GoodputSeconds.model_fields if (seconds := getattr(goodput.seconds, name))}


def slowest_rank_text(training: Training | None) -> str:
    """The sentence about the slowest rank; empty without one."""
    return slow_rank_text(training.model_dump(by_alias=True, exclude_none=True) if training else None) or ""


def has_slow_rank_news(job: HorovodJob, usage: UsageReport | None) -> bool:
    """Whether the slowest rank is another one than in the status."""
    if usage is None or job.status.phase is not Phase.RUNNING:
        return False
    known = job.status.training.slowest_rank if job.status.training else None
    found = usage.slowest_rank
    return (known.rank if known else None) != (found.rank if found else None)
