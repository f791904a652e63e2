"""When a job failed, and why. Pure."""

from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import ConditionType, Phase
from horovodjob.api.status import HorovodJobStatus


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The end of a failed job."""

    reason: str
    at: datetime


def job_failure(status: HorovodJobStatus) -> JobFailure | None:
    """The failure in a status; None if the job has not failed."""
    failed = status.condition(ConditionType.FAILED)
    if status.phase is not Phase.FAILED or failed is None or status.completion_time is None:
        return None
    return JobFailure(failed.reason, status.completion_time)
