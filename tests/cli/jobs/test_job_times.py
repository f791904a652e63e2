"""Age, duration and GPU hours of a job."""

from datetime import UTC, datetime
from typing import Any

import pytest

from horovodjob.client.jobs.job_times import duration_text, job_times

NOW = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)
NOON, ONE = "2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (119, "119s"), (125, "2m5s"), (700, "11m"), (7500, "2h5m"), (7200, "2h"), (266461, "3d2h")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("status", "duration", "gpu_hours"),
    [
        ({}, None, 0),
        ({"startTime": NOON}, "2h", 0),
        ({"startTime": NOON, "runningTime": ONE}, "2h", 8),
        ({"startTime": NOON, "runningTime": NOON, "completionTime": ONE}, "1h", 8),
        ({"attempt": 2, "activeSeconds": 1800}, "30m", 4),
        ({"attempt": 2, "activeSeconds": 1800, "startTime": ONE}, "1h30m", 12),
    ],
    ids=["not admitted", "waits for nodes", "runs", "ended", "suspended", "resumed"],
)
def test_gpu_hours_begin_with_the_ranks_and_pause_with_the_job(
    status: dict[str, Any], duration: str | None, gpu_hours: float
) -> None:
    job = {"metadata": {"creationTimestamp": NOON}, "spec": {"worker": {"replicas": 2, "gpus": 4}}, "status": status}
    times = job_times(job, NOW)
    assert (times["age"], times["duration"], times["gpuHours"]) == ("2h", duration, gpu_hours)
