"""What rank 0 tells about its training: what a report has to be, and what the status shows of it."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import MOST_METRICS, Training

REPORT_BYTES = 4096
# Such a year is a mistake, and the API server would refuse the whole status for some of them.
EARLIEST_YEAR = 2000
MetricName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_./-]{0,62}$")]


class Result(StrEnum):
    """What became of a report, in the words of the metric."""

    TAKEN = "taken"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"
    FOREIGN = "foreign"
    STALE = "stale"
    TOO_OFTEN = "too_often"
    NOT_LEADER = "not_leader"
    UNAVAILABLE = "unavailable"


class Report(Training):
    """One report; it names no job, because the token that comes with it does."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    attempt: int = Field(ge=1)
    metrics: dict[MetricName, float] = Field({}, max_length=MOST_METRICS)

    @field_validator("eta")
    @classmethod
    def _as_stored(cls, eta: datetime | None) -> datetime | None:
        """In UTC and whole seconds, so that what is read back equals what was written."""
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
        """What the status shows of it."""
        told = self.model_dump(exclude={"attempt", "percent"})
        # A hair for 0.29 * 100 = 28.999999999999996; rounding up would call a job done that is not.
        return Training(**told, percent=f"{int(self.progress * 100 + 1e-9)}%")


def parse_report(body: bytes) -> Report:
    """The report in a request's body. Raises ValueError with a sentence."""
    try:
        return Report.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise ValueError(f"{where}: {first['msg']}"[:300]) from None


def is_current(job: HorovodJob, report: Report) -> bool:
    """Whether the report is about what runs now; a worker may live on with a rank of an attempt that is over."""
    return report.attempt == job.status.attempt and job.status.phase in (Phase.STARTING, Phase.RUNNING)
