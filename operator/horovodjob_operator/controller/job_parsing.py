"""Parsing of HorovodJobs from the API server."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from horovodjob.api.constants import ConditionType, Reason
from horovodjob.api.job import HorovodJob, Metadata, parse_status
from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.domain.observed import Refusal


def new_job_state(raw: Mapping[str, Any], metadata: Metadata, defaults: JobDefaults) -> JobState:
    """The state of a job that this process reads for the first time."""
    job, refusal = parse_job(raw, metadata, defaults)
    has_conflict = job.status.condition(ConditionType.STALLED) and any(
        condition.reason == Reason.NAME_CONFLICT for condition in job.status.conditions
    )
    owns_secret = job.status.phase is not None and not has_conflict
    return JobState(job, int(metadata.resource_version), refusal, owns_secret=owns_secret)


def parse_job(raw: Mapping[str, Any], metadata: Metadata, defaults: JobDefaults) -> tuple[HorovodJob, Refusal | None]:
    """The job with the defaults of the cluster, and a refusal if its spec cannot be parsed."""
    status = parse_status(raw.get("status"))
    try:
        stored = HorovodJobSpec.model_validate(raw["spec"])
        spec = defaults.apply_to(stored)
        return HorovodJob(metadata=metadata, spec=spec, status=status, stored_spec=stored), None
    except (ValidationError, KeyError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "is missing"}
        field = ".".join(str(part) for part in ("spec", *first["loc"]))
        message = f"{field}: {first['msg']}; this version of the operator does not change the job"
        refusal = Refusal(Reason.INVALID_SPEC, message, retry_at=None, is_unreadable=True)
        return HorovodJob(metadata=metadata, spec=HorovodJobSpec(image=""), status=status), refusal
