"""A HorovodJob as the API server shows it, and what the process keeps of it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob.api.job import HorovodJob, Metadata, parse_status
from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator.cluster.caches import FinishedJob, Record
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.domain.observed import Refusal


def ended_job(raw: Mapping[str, Any], metadata: Metadata) -> FinishedJob | None:
    """What is kept of a job that has ended; None of one that has not. Reads it as it is stored: they are many."""
    status = raw.get("status") or {}
    try:
        completed_at, phase = datetime.fromisoformat(status["completionTime"]), Phase(status["phase"])
    except (KeyError, TypeError, ValueError):
        return None
    seconds = ((raw.get("spec") or {}).get("runPolicy") or {}).get("ttlSecondsAfterFinished")
    delete_at = None if seconds is None else completed_at + timedelta(seconds=seconds)
    is_observed = status.get("observedGeneration") == metadata.generation
    return FinishedJob(metadata.uid, int(metadata.resource_version), phase, completed_at, delete_at, is_observed)


def finished_job(job: HorovodJob, version: int) -> FinishedJob | None:
    """What is kept of a job that has ended; None of one that has not."""
    status, seconds = job.status, job.spec.run_policy.ttl_seconds_after_finished
    if status.phase is None or status.completion_time is None:
        return None
    delete_at = None if seconds is None else status.completion_time + timedelta(seconds=seconds)
    return FinishedJob(job.metadata.uid, version, status.phase, status.completion_time, delete_at)


def new_record(raw: Mapping[str, Any], metadata: Metadata, defaults: JobDefaults) -> Record:
    """What is known of a job that is seen for the first time."""
    job, refusal = parsed_job(raw, metadata, defaults)
    conflict = job.status.condition(ConditionType.STALLED) and any(
        condition.reason == Reason.NAME_CONFLICT for condition in job.status.conditions
    )
    secret_is_ours = job.status.phase is not None and not conflict
    return Record(job, int(metadata.resource_version), refusal, secret_is_ours=secret_is_ours)


def parsed_job(raw: Mapping[str, Any], metadata: Metadata, defaults: JobDefaults) -> tuple[HorovodJob, Refusal | None]:
    """The job with the cluster's defaults; one that does not parse comes with a refusal for its author."""
    status = parse_status(raw.get("status"))
    try:
        stored = HorovodJobSpec.model_validate(raw["spec"])
        spec = defaults.apply_to(stored)
        return HorovodJob(metadata=metadata, spec=spec, status=status, stored_spec=stored), None
    except (ValidationError, KeyError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "is missing"}
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        words = f"{where}: {first['msg']}; this version of the operator leaves the job alone"
        refusal = Refusal(Reason.INVALID_SPEC, words, retry_at=None, is_unreadable=True)
        return HorovodJob(metadata=metadata, spec=HorovodJobSpec(image=""), status=status), refusal
