"""How old a job is, how long it has been active, how many GPU hours it has used, and its last events."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from horovodjob.client.cluster.kube import event_time
from horovodjob.client.jobs.batchai_records import worker

Object = dict[str, Any]
EVENTS = 5
UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def current_time() -> datetime:
    """The time for all records of a command."""
    return datetime.now(UTC)  # noqa: TID251 (a command is one process)


def last_events(events: Sequence[Object] | None, now: datetime) -> list[Object] | None:
    """The last events of an object, the oldest first; None stays None."""
    if events is None:
        return None
    return [
        {
            "time": event_time(event).replace("+00:00", "Z"),
            "age": age_text(event_time(event), now),
            "type": event.get("type") or "",
            "reason": event.get("reason") or "",
            "message": event.get("message") or "",
            "count": (event.get("series") or {}).get("count") or event.get("count") or 1,
        }
        for event in events[-EVENTS:]
    ]


def job_times(job: Object, now: datetime) -> Object:
    """The fields age, duration, activeSeconds and gpuHours of a record."""
    status = job.get("status") or {}
    active = active_seconds(status, now)
    gpus = worker(job["spec"], "replicas") * worker(job["spec"], "gpus")
    return {
        "age": age_text(job["metadata"]["creationTimestamp"], now),
        "duration": None if active is None else duration_text(active),
        "activeSeconds": active,
        "gpuHours": round(gpus * running_seconds(status, now) / 3600, 2) if gpus else None,
    }


def active_seconds(status: Mapping[str, Any], now: datetime) -> int | None:
    """Seconds since the admission, without suspensions and the time in a queue; None before the admission."""
    before = int(status.get("activeSeconds") or 0)
    start = point_in_time(status.get("startTime"))
    if start is None:
        return before or None
    return before + max(0, round((_end(status, now) - start).total_seconds()))


def running_seconds(status: Mapping[str, Any], now: datetime) -> int:
    """Seconds for which the job has used its GPUs; in the first attempt, none before its ranks start.

    The active time after a restart: the status does not have the times of previous attempts.
    """
    if status.get("attempt", 1) > 1:
        return active_seconds(status, now) or 0
    running = point_in_time(status.get("runningTime"))
    return max(0, round((_end(status, now) - running).total_seconds())) if running else 0


def duration_text(seconds: float) -> str:
    """The two largest units, such as 45s, 12m or 2h5m, as kubectl prints them; only minutes from 10 minutes on."""
    rest = max(int(seconds), 0)
    if rest < 120:
        return f"{rest}s"
    parts: list[str] = []
    for unit, size in UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    is_short = seconds < 600 or seconds >= 3600
    return "".join(parts[:2] if is_short else parts[:1])


def _end(status: Mapping[str, Any], now: datetime) -> datetime:
    return point_in_time(status.get("completionTime")) or now


def point_in_time(text: object) -> datetime | None:
    """The time of an object, in UTC if it names no zone; None for a text that is no time."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def age_text(since: object, now: datetime) -> str:
    """The time since then, such as 12m; empty for a text that is no time."""
    moment = point_in_time(since)
    return "" if moment is None else duration_text((now - moment).total_seconds())
