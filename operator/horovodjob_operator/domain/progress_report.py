"""Reports of rank 0 about the progress of its training: their format, and what the status contains. Pure."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import MAX_METRICS, Training

MAX_REPORT_BYTES = 4096
# The API server rejects a status with certain earlier years, and all of them are mistakes.
EARLIEST_YEAR = 2000
MetricName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_./-]{0,62}$")]


class ReportResult(StrEnum):
    """How a report was handled; the values are labels of a metric."""

    ACCEPTED = "taken"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"
    FOREIGN = "foreign"
    STALE = "stale"
    TOO_OFTEN = "too_often"
    NOT_LEADER = "not_leader"
    UNAVAILABLE = "unavailable"


class ProgressReport(Training):
    """One report. It does not name the job, because its token does."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    attempt: int = Field(ge=1)
    metrics: dict[MetricName, float] = Field({}, max_length=MAX_METRICS)

    @field_validator("eta")
    @classmethod
    def _as_stored(cls, eta: datetime | None) -> datetime | None:
        """In UTC and whole seconds, so that the stored value equals the reported one."""
        if eta is None:
            return None
        if eta.tzinfo is None or eta.year < EARLIEST_YEAR:
            raise ValueError("must be a time of this century with its zone, such as 2030-01-31T12:00:00Z")
        try:
            return eta.astimezone(UTC).replace(microsecond=0)
        except OverflowError as error:
            raise ValueError("is out of range") from error

    @property
    def training(self) -> Training:
        """The part that the status contains."""
        fields = self.model_dump(exclude={"attempt", "percent"})
        # 0.29 * 100 = 28.999999999999996 must be 29, but rounding up would show 100% before the end.
        return Training(**fields, percent=f"{int(self.progress * 100 + 1e-9)}%")


def parse_report(body: bytes) -> ProgressReport:
    """The report in the body of a request. Raises ValueError with one sentence."""
    try:
        return ProgressReport.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise ValueError(f"{where}: {first['msg']}"[:300]) from None


def is_current(job: HorovodJob, report: ProgressReport) -> bool:
    """Whether the report is about the current attempt; a rank of a previous attempt can still run on a worker."""
    return report.attempt == job.status.attempt and job.status.phase in (Phase.STARTING, Phase.RUNNING)
