"""What the process knows of a finished job that needs no reconciliation: little, because there are many."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob, Metadata


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job with a completion time, and with a status that is about the current spec."""

    uid: str
    version: int
    phase: Phase
    delete_at: datetime | None
    """When runPolicy.ttlSecondsAfterFinished has passed."""


def finished_job_from_raw(raw: Mapping[str, Any], metadata: Metadata) -> FinishedJob | None:
    """A stored job; None if it is not finished. Does not parse the whole job, because there are many."""
    status = raw.get("status") or {}
    try:
        completed_at, phase = datetime.fromisoformat(status["completionTime"]), Phase(status["phase"])
    except (KeyError, TypeError, ValueError):
        return None
    if status.get("observedGeneration") != metadata.generation:
        return None
    seconds = ((raw.get("spec") or {}).get("runPolicy") or {}).get("ttlSecondsAfterFinished")
    delete_at = None if seconds is None else completed_at + timedelta(seconds=seconds)
    return FinishedJob(metadata.uid, int(metadata.resource_version), phase, delete_at)


def finished_job(job: HorovodJob, version: int) -> FinishedJob | None:
    """A job in memory; None if it is not finished."""
    status, seconds = job.status, job.spec.run_policy.ttl_seconds_after_finished
    if status.phase is None or status.completion_time is None:
        return None
    delete_at = None if seconds is None else status.completion_time + timedelta(seconds=seconds)
    return FinishedJob(job.metadata.uid, version, status.phase, delete_at)
