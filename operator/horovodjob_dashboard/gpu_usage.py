"""GPU hours of jobs in a time, by owner, namespace and experiment. Pure: rows of jobs in, rows of tables out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horovodjob.client.jobs.job_times import point_in_time, running_seconds
from horovodjob_dashboard.job_rows import JobRow

DAYS = (1, 7, 30, 90, 365)
DEFAULT_DAYS = 30
MOST_ROWS = 50
GROUPS: Mapping[str, Callable[[JobRow], str]] = {
    "owner": lambda row: row.owner,
    "namespace": lambda row: row.namespace,
    "experiment": lambda row: row.experiment,
}


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What the jobs of a group have used."""

    name: str
    """Empty: the jobs that are in no group."""
    jobs: int
    gpu_hours: float
    spot_gpu_hours: float
    """Those of jobs with spec.spot, of all GPU hours."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The GPU hours of all jobs, and those of each group of each kind, the largest first."""

    jobs: int
    gpu_hours: float
    spot_gpu_hours: float
    groups: Mapping[str, list[UsageRow]]


def usage(rows: Iterable[JobRow], since: datetime, now: datetime) -> Usage:
    """The GPU hours between two times, of the jobs that exist."""
    used = [(row, hours) for row in rows if row.gpus and (hours := gpu_hours(row, since, now)) > 0]
    return Usage(
        len(used),
        sum(hours for _, hours in used),
        sum(hours for row, hours in used if row.is_spot),
        {kind: _grouped(used, name) for kind, name in GROUPS.items()},
    )


def _grouped(used: Iterable[tuple[JobRow, float]], name: Callable[[JobRow], str]) -> list[UsageRow]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row, hours in used:
        found.setdefault(name(row), []).append((hours, hours if row.is_spot else 0.0))
    rows = [UsageRow(key, len(hours), *map(sum, zip(*hours, strict=True))) for key, hours in found.items()]
    return sorted(rows, key=lambda row: (-row.gpu_hours, row.name))


def gpu_hours(row: JobRow, since: datetime, now: datetime) -> float:
    """The GPU hours of a job between two times; without `since`, they are those of the page of the job.

    The status has the seconds before the last suspension or queue as a sum, which is spread evenly over the time from
    the creation of the job to its last start.
    """
    try:
        return row.gpus * _seconds(row.times, row.created, since, now) / 3600
    except (OverflowError, TypeError, ValueError):  # an odd time in the status of one job
        return 0.0


def _seconds(times: Mapping[str, Any], created: str, since: datetime, now: datetime) -> float:
    total = running_seconds(times, now)
    start = point_in_time(times.get("startTime" if times.get("attempt", 1) > 1 else "runningTime"))
    end = min(point_in_time(times.get("completionTime")) or now, now)
    current = max((end - start).total_seconds(), 0.0) if start else 0.0
    before = max(total - current, 0.0)
    found = _overlap(start, end, since, now) if start else 0.0
    first, last = point_in_time(created), start or end
    if before < 1 or first is None:
        return found
    span = max((last - first).total_seconds(), before)
    return found + before * _overlap(last - timedelta(seconds=span), last, since, now) / span


def _overlap(start: datetime, end: datetime, since: datetime, now: datetime) -> float:
    return max((min(end, now) - max(start, since)).total_seconds(), 0.0)
