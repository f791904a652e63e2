"""What the process knows of a finished job that needs no reconciliation: little, because there are many."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.constants import ConditionType, Phase
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob_operator.domain.job_errors import JobFailure, job_failure


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job with a completion time, and with a status that is about the current spec."""

    uid: str
    version: int
    phase: Phase
    delete_at: datetime | None
    """When runPolicy.ttlSecondsAfterFinished has passed."""
    failure: JobFailure | None = None


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
    failure = JobFailure(_failure_reason(status), completed_at) if phase is Phase.FAILED else None
    return FinishedJob(metadata.uid, int(metadata.resource_version), phase, delete_at, failure)


def _failure_reason(status: Mapping[str, Any]) -> str:
    """The reason of the condition Failed, of which there are few different ones."""
    reasons = (one.get("reason") for one in status.get("conditions") or () if one.get("type") == ConditionType.FAILED)
    return sys.intern(str(next(reasons, "")))


def finished_job(job: HorovodJob, version: int) -> FinishedJob | None:
    """A job in memory; None if it is not finished."""
    status, seconds = job.status, job.spec.run_policy.ttl_seconds_after_finished
    if status.phase is None or status.completion_time is None:
        return None
    delete_at = None if seconds is None else status.completion_time + timedelta(seconds=seconds)
    return FinishedJob(job.metadata.uid, version, status.phase, delete_at, job_failure(status))
