"""Parsing of HorovodJobs from the API server."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from horovodjob.api.constants import Reason
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.watches.namespace_selection import NamespaceDefaults
from horovodjob_operator.domain.pods.observed import Refusal

LEFT_ALONE = "this version of the operator does not change the job"


def new_job_state(raw: Mapping[str, Any], metadata: Metadata, defaults: NamespaceDefaults) -> JobState:
    """The state of a job as the API server stores it, with the defaults of its namespace.

    A spec or a status that this release cannot parse, such as after a rollback, becomes a refusal.
    """
    version = int(metadata.resource_version)
    try:
        status = HorovodJobStatus.model_validate(raw.get("status") or {})
    except ValidationError as error:
        refusal = _unreadable(Reason.UNKNOWN_STATUS, "status", error)
        job = HorovodJob(metadata=metadata, spec=HorovodJobSpec(image=""))
        return JobState(job, version, refusal, unreadable_status=raw["status"])
    try:
        stored = HorovodJobSpec.model_validate(raw.get("spec"))
    except ValidationError as error:
        refusal = _unreadable(Reason.INVALID_SPEC, "spec", error)
        return JobState(HorovodJob(metadata=metadata, spec=HorovodJobSpec(image=""), status=status), version, refusal)
    spec = defaults.values.apply_to(stored)
    job = HorovodJob(metadata=metadata, spec=spec, status=status, stored_spec=stored)
    return JobState(job, version, defaults_error=defaults.error)


def apply_defaults(state: JobState, defaults: NamespaceDefaults) -> None:
    """Replaces the defaults of a job. They can be the remedy of its refusal."""
    if stored := state.job.stored_spec:
        state.job = state.job.model_copy(update={"spec": defaults.values.apply_to(stored)})
        state.refusal, state.refusal_count, state.defaults_error = None, 0, defaults.error


def _unreadable(reason: Reason, part: str, error: ValidationError) -> Refusal:
    first = error.errors()[0]
    field = ".".join(str(step) for step in (part, *first["loc"]))
    return Refusal(reason, f"{field}: {first['msg']}; {LEFT_ALONE}", retry_at=None, is_unreadable=True)
