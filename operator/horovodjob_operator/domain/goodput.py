"""What the time of a job was used for, and its slowest rank: from reports of rank 0 and the status. Pure."""

from collections.abc import Iterable
from datetime import datetime

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import AttemptGoodput, Goodput, GoodputSeconds, HorovodJobStatus, SlowestRank, Training
from horovodjob.lost_time import slow_rank_text
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.stall_report import ReportedSeconds, UsageReport

REPORTED = tuple(ReportedSeconds.model_fields)
"""The causes that a program knows; the operator knows the others."""
EMPTY = GoodputSeconds()


def with_usage(
    job: HorovodJob,
    status: HorovodJobStatus,
    usage: UsageReport | None,
    pods: Iterable[Pod],
    delay_seconds: float,
    now: datetime,
) -> HorovodJobStatus:
    """A status that differs from that of the job, with what its time was used for until now.

    `usage` is the newest report about the attempt of the job. `delay_seconds` is that before the next attempt.
    """
    known = status.training.goodput if status.training else None
    if usage is None and known is None:
        return status
    training = status.training or Training(progress=0)
    goodput = _goodput(job, status, usage, known, delay_seconds, now)
    slowest = (
        _slowest(usage, pods) if usage and not status.is_finished and status.attempt == job.status.attempt else None
    )
    return status.model_copy(
        update={"training": training.model_copy(update={"goodput": goodput, "slowest_rank": slowest})}
    )


def _goodput(
    job: HorovodJob,
    status: HorovodJobStatus,
    usage: UsageReport | None,
    known: Goodput | None,
    delay_seconds: float,
    now: datetime,
) -> Goodput:
    attempt = _attempt(job.status.attempt, usage) if usage else None
    seconds = {name: getattr(known.seconds, name) for name in GoodputSeconds.model_fields} if known else {}
    if attempt:
        before = known.attempt.seconds if known and known.attempt.number == attempt.number else EMPTY
        if known and known.attempt.number < attempt.number and (lost := _lost_seconds(known.attempt, attempt)):
            seconds["lost_steps"] += lost
            seconds["steps"] = max(seconds["steps"] - lost, 0)
        for name in REPORTED:
            change = getattr(attempt.seconds, name) - getattr(before, name)
            seconds[name] = max(seconds.get(name, 0) + change, 0)
    attempt = attempt or (known.attempt if known else AttemptGoodput(number=job.status.attempt, percent=0))
    seconds["restart_delay"] = seconds.get("restart_delay", 0) + round(delay_seconds)
    others = sum(value for name, value in seconds.items() if name != "starting")
    total = max(_total_seconds(status, now), others)
    seconds["starting"] = total - others
    return Goodput(
        percent=_percent(seconds.get("steps", 0), total),
        seconds=GoodputSeconds(**seconds),
        attempt=attempt,
    )


def _attempt(number: int, usage: UsageReport) -> AttemptGoodput:
    seconds = GoodputSeconds(**{name: round(getattr(usage.seconds, name)) for name in REPORTED})
    total = sum(getattr(usage.seconds, name) for name in REPORTED)
    return AttemptGoodput(
        number=number,
        percent=_percent(usage.seconds.steps, total),
        seconds=seconds,
        steps=usage.steps,
        first_step=usage.first_step,
    )


def _lost_seconds(earlier: AttemptGoodput, attempt: AttemptGoodput) -> int:
    """The time of the steps that an earlier attempt has done and this one does again."""
    if attempt.first_step is None or earlier.first_step is None or earlier.steps <= earlier.first_step:
        return 0
    share = (earlier.steps - max(attempt.first_step, earlier.first_step)) / (earlier.steps - earlier.first_step)
    return max(round(earlier.seconds.steps * share), 0)


def _total_seconds(status: HorovodJobStatus, now: datetime) -> int:
    """Since the job was admitted, without suspensions."""
    if status.start_time is None:
        return status.active_seconds
    return status.active_seconds + max(0, round(((status.completion_time or now) - status.start_time).total_seconds()))


def _percent(part: float, total: float) -> float:
    return round(min(100 * part / total, 100.0), 1) if total > 0 else 0.0


def _slowest(usage: UsageReport, pods: Iterable[Pod]) -> SlowestRank | None:
    found = usage.slowest_rank
    if found is None:
        return None
    node = next((pod.node for pod in pods if pod.name == found.pod), "")
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
    """Whether another rank is the slowest than the status says."""
    if usage is None or job.status.phase is not Phase.RUNNING:
        return False
    known = job.status.training.slowest_rank if job.status.training else None
    found = usage.slowest_rank
    return (known.rank if known else None) != (found.rank if found else None)
