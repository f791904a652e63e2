"""Reports of the watch of rank 0 about a training that makes no progress: their format. Pure."""

import json
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from horovodjob.api.base import Model
from horovodjob.api.status import Count
from horovodjob_operator.domain.foreign_text import clean_text
from horovodjob_operator.domain.progress_report import ReportedTime, problem

MAX_BLAMED = 8


def _line(text: str) -> str:
    """The text on one line, with printable characters only: it reaches terminals."""
    return " ".join("".join(each if each.isprintable() else " " for each in clean_text(text)).split())


Seconds = Annotated[float, Field(ge=0, le=10**12)]
Line = Annotated[str, AfterValidator(_line)]


class BlamedRank(Model):
    """A rank that the others wait for."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    rank: Count
    host: Annotated[Line, Field(max_length=253)] = ""
    """Its pod."""
    text: Annotated[Line, Field(max_length=1000)]
    """What it does."""


class Stall(Model):
    """A training that makes no progress."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    since: ReportedTime
    """When the last step was completed."""
    usual_seconds: Annotated[float, Field(ge=0)] | None = None
    """The usual duration of a step."""
    blamed: tuple[BlamedRank, ...] = Field((), max_length=MAX_BLAMED)
    others: Annotated[Line, Field(max_length=1000)] = ""
    """What the other ranks do."""
    steps: Count | None = None
    """The number of the last completed step; 0 if the attempt has none, None if the program does not know it."""
    is_over: bool = False
    """The deadline of the user has passed, and the watch ends the attempt."""


class ReportedSlowRank(Model):
    """A rank that needs more time for its part of a step than the others."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    rank: Count
    pod: Annotated[Line, Field(max_length=253)] = ""
    ratio: Annotated[float, Field(ge=1, le=10**6)]
    section: Literal["", "input", "compute"] = ""


class ReportedSeconds(Model):
    """What the time of rank 0 was used for."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    steps: Seconds = 0
    setup: Seconds = 0
    input: Seconds = 0
    exchange: Seconds = 0
    validation: Seconds = 0
    checkpoints: Seconds = 0
    stalled: Seconds = 0


class UsageReport(Model):
    """What the time of an attempt was used for, and which rank is slow."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    seconds: ReportedSeconds
    steps: Count = 0
    """The number of the last completed step."""
    first_step: Count | None = None
    """The number of the step that the attempt continued from, if the program knows it."""
    slowest_rank: ReportedSlowRank | None = None


class StallReport(Model):
    """A report about a stall, or about its end, which has none."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    attempt: int = Field(ge=1)
    stall: Stall | None
    usage: UsageReport | None = None
    next_within: Annotated[float, Field(ge=0, le=86400)] = 0
    """Within how many seconds the next report is sent; 0 if none is announced."""
    is_deputy: bool = False
    """It comes from a rank in another pod, because that of rank 0 does not answer."""
    changes: str = Field("", exclude=True, max_length=0)


def parse_stall(body: bytes) -> StallReport | None:
    """The report in the body of a request; None if it is one of progress. Raises ValueError with one sentence."""
    if b'"stall"' not in body:  # most reports, which are then parsed once
        return None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or "stall" not in fields:
        return None
    try:
        return StallReport.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(problem(error)) from None
