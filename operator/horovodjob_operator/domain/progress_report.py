"""Reports of rank 0 about the progress of its training: their format, their author, what the status contains. Pure."""

import base64
import binascii
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from math import ceil, isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from horovodjob.api.base import Model
from horovodjob.api.constants import Phase, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import (
    MAX_HISTORY,
    MAX_METRICS,
    Best,
    EpochValue,
    Extremes,
    Mode,
    TrainedEpoch,
    Training,
)
from horovodjob_operator.domain import names
from horovodjob_operator.domain.pods.pod import Pod

MAX_REPORT_BYTES = 65536
SIGNIFICANT_DIGITS = 5
# The API server refuses a status with certain earlier years, and all of them are mistakes.
EARLIEST_YEAR = 2000
METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")
MOST_NOTES = 500  # characters


class ReportResult(StrEnum):
    """How a report was handled; the values are labels of a metric."""

    ACCEPTED = "accepted"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"
    FOREIGN = "foreign"
    STALE = "stale"
    TOO_OFTEN = "too_often"
    NOT_LEADER = "not_leader"
    UNAVAILABLE = "unavailable"


def _as_stored(moment: datetime) -> datetime:
    """In UTC and whole seconds, so that the stored value equals the reported one."""
    if moment.tzinfo is None or moment.year < EARLIEST_YEAR:
        raise ValueError("must be a time of this century with its zone, such as 2030-01-31T12:00:00Z")
    try:
        return moment.astimezone(UTC).replace(microsecond=0)
    except OverflowError as error:
        raise ValueError("is out of range") from error


def _rounded(number: float) -> float:
    return float(f"{number:.{SIGNIFICANT_DIGITS}g}")


@dataclass(slots=True)
class _Notes:
    """What was changed in the metrics of a report, and which of them are not finite."""

    sentences: dict[str, None] = field(default_factory=dict)
    non_finite: dict[str, None] = field(default_factory=dict)
    newest: list[str] = field(default_factory=list)
    """Those of the metrics that were read last, which are of the same epoch."""


def metric_name(name: str) -> str:
    """The name as the status has it: ASCII letters, digits, `_`, `.`, `/` and `-`, at most 63 of them."""
    if METRIC_NAME.fullmatch(name):
        return name
    letters = (each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    text = "".join(f"u{ord(each):04x}" if each.isalnum() and not each.isascii() else each for each in letters)
    text = re.sub(r"[^A-Za-z0-9_./-]+", "_", text)
    text = text if text.endswith("_") and name.endswith("_") else text.rstrip("_")
    return (text if re.match(r"[A-Za-z_]", text) else f"_{text}")[:63]


def metric_order(name: str) -> int:
    """The place of a metric where there is room for some only: losses, then metrics of the validation."""
    return 0 if name in ("loss", "val_loss") else 1 if name.startswith("val_") else 2


def _storable(given: Any, info: ValidationInfo) -> Any:
    """The metrics that a status can have. One that it cannot have is renamed or left out, and the others stay."""
    if not isinstance(given, Mapping):
        return given
    notes: _Notes = info.context or _Notes()
    notes.newest = []
    kept: dict[str, float] = {}
    for name in sorted(given, key=lambda name: (metric_name(name) != name, metric_order(name))):
        stored, value = metric_name(name), given[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(_float(value)):
            problem = "is NaN or infinite" if is_number else "is no number"
            if is_number:
                notes.non_finite[stored] = None
                notes.newest.append(stored)
        elif stored in kept:
            problem = f"would have the name of another metric, {stored}"
        elif len(kept) == MAX_METRICS:
            problem = f"is more than the {MAX_METRICS} metrics of a status"
        else:
            kept[stored] = float(value)
            if stored != name:
                notes.sentences[f"metric {name!r} is stored as {stored}"] = None
            continue
        notes.sentences[f"metric {name!r} is left out: it {problem}"] = None
    return {name: kept[name] for name in map(metric_name, given) if name in kept}


def _non_finite(named: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
    """The metrics of an epoch that are NaN or infinite: those that the program names, and those that it has sent."""
    notes: _Notes = info.context or _Notes()
    return tuple(dict.fromkeys((*map(metric_name, named or ()), *notes.newest)))[:MAX_METRICS] or None


def _renamed(given: Any) -> Any:
    """Facts about metrics under the names that the status has; of more than it can have, the first ones."""
    if not isinstance(given, Mapping):
        return given
    return dict(list({metric_name(name): fact for name, fact in given.items()}.items())[:MAX_METRICS])


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of 400 digits
        return float("inf")


ReportedTime = Annotated[datetime, AfterValidator(_as_stored)]
Rounded = Annotated[float, AfterValidator(_rounded)]


class ReportedEpoch(TrainedEpoch):
    """A complete epoch in a report."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    time: ReportedTime
    metrics: Annotated[dict[str, Rounded], BeforeValidator(_storable)] = Field(
        {}, max_length=MAX_METRICS, validate_default=True
    )
    non_finite: Annotated[tuple[str, ...] | None, AfterValidator(_non_finite)] = Field(None, validate_default=True)
    learning_rate: Rounded | None = None
    samples_per_second: Annotated[Rounded, Field(ge=0)] | None = None


class ReportedValue(EpochValue):
    """The lowest or the highest value of a metric in a report."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)


class ReportedExtremes(Model):
    """The lowest and the highest value of a metric in a report."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    min: ReportedValue
    max: ReportedValue


class ProgressReport(Training):
    """One report. It does not name the job, because its token does."""

    model_config = ConfigDict(allow_inf_nan=False, strict=True)
    attempt: int = Field(ge=1)
    eta: ReportedTime | None = None
    metrics: Annotated[dict[str, float], BeforeValidator(_storable)] = Field({}, max_length=MAX_METRICS)
    history: tuple[ReportedEpoch, ...] = Field((), max_length=MAX_HISTORY)
    """The newest complete epochs of the attempt."""
    monitor: Annotated[str, AfterValidator(metric_name)] | None = None
    """The metric that the program selects its best epoch by."""
    modes: Annotated[dict[str, Mode], BeforeValidator(_renamed)] = Field({}, max_length=MAX_METRICS)
    """Which value of a metric is the best, of the metrics of which the program knows it."""
    extremes: Annotated[dict[str, ReportedExtremes], BeforeValidator(_renamed)] = Field(  # type: ignore[assignment]
        {}, max_length=MAX_METRICS
    )
    """The lowest and the highest values in all epochs of the run, if the program knows those of earlier attempts."""
    changes: str = Field("", exclude=True)
    """What the status does not have as it was reported, in sentences; `parse_report` sets it."""

    def training(self, stored: Training | None) -> Training:
        """The part that the status contains, with what is stored of earlier epochs, and of other reports."""
        own = {"attempt", "percent", "history", "monitor", "modes", "extremes", "best", "goodput", "slowest_rank"}
        history = merged_history(stored.history if stored else (), self.history)
        extremes = self._merged_extremes(stored.extremes if stored else {})
        return Training(
            **self.model_dump(exclude=own),
            # 0.29 * 100 = 28.999999999999996 must be 29, but rounding up would show 100% before the end.
            percent=f"{int(self.progress * 100 + 1e-9)}%",
            history=history,
            extremes=extremes,
            best=self._best(extremes),
            goodput=stored.goodput if stored else None,
            slowest_rank=stored.slowest_rank if stored else None,
        )

    def _merged_extremes(self, stored: Mapping[str, Extremes]) -> dict[str, Extremes]:
        """The lowest and the highest value of each metric in all epochs.

        A program that resumes reports those of its run. Otherwise they follow from the stored ones of epochs before
        those that are reported, and from these: a report has more epochs than complete between two reports.
        """
        earliest = min((epoch.epoch for epoch in self.history), default=None)
        known = (*self.extremes, *(name for epoch in self.history for name in epoch.metrics), *stored)
        found = {}
        for name in list(dict.fromkeys(known))[:MAX_METRICS]:
            before, reported = stored.get(name), self.extremes.get(name)
            ends: list[EpochValue] = [reported.min, reported.max] if reported else []
            if not reported:
                kept = (before.min, before.max) if before else ()
                ends += [end for end in kept if earliest is None or end.epoch < earliest]
                epochs = (epoch for epoch in self.history if name in epoch.metrics)
                ends += [EpochValue(epoch=epoch.epoch, value=epoch.metrics[name]) for epoch in epochs]
            if ends:
                found[name] = _extremes(ends, self.modes.get(name, before.mode if before else None))
        return found

    def _best(self, extremes: Mapping[str, Extremes]) -> Best | None:
        """The best epoch by the metric that the program selects by."""
        if self.monitor is None:
            return None
        known = extremes.get(self.monitor)
        end = known.best if known else None
        return Best(
            metric=self.monitor,
            mode=self.modes.get(self.monitor),
            value=end.value if end else None,
            epoch=end.epoch if end else None,
        )


def _extremes(ends: Sequence[EpochValue], mode: Mode | None) -> Extremes:
    """The lowest and the highest value, each with the first epoch that reached it."""
    lowest = min(ends, key=lambda end: (end.value, end.epoch))
    highest = min(ends, key=lambda end: (-end.value, end.epoch))
    return Extremes(mode=mode, min=_plain(lowest), max=_plain(highest))


def _plain(end: EpochValue) -> EpochValue:
    return EpochValue(epoch=end.epoch, value=end.value)


def merged_history(stored: Sequence[TrainedEpoch], reported: Sequence[TrainedEpoch]) -> tuple[TrainedEpoch, ...]:
    """The stored epochs before those that are reported, and these, thinned to the number that the status has.

    An attempt that resumes repeats epochs, and one that starts at the first epoch repeats all: the newer ones count.
    Which epochs remain depends on the first and the newest alone, so the same report does not change them again.
    """
    by_epoch = {epoch.epoch: epoch for epoch in reported}
    if by_epoch:
        earliest = min(by_epoch)
        stored = [epoch for epoch in stored if epoch.epoch < earliest]
    epochs = sorted((*stored, *by_epoch.values()), key=lambda epoch: epoch.epoch)
    if not epochs:
        return ()
    first, newest, stride = epochs[0].epoch, epochs[-1].epoch, 1
    while ceil((newest - first) / stride) >= MAX_HISTORY:
        stride *= 2
    kept = [epoch for epoch in epochs if epoch.epoch == newest or not (epoch.epoch - first) % stride]
    return tuple(TrainedEpoch(**epoch.model_dump()) for epoch in kept)


def parse_report(body: bytes) -> ProgressReport:
    """The report in the body of a request. Raises ValueError with one sentence."""
    notes = _Notes()
    try:
        report = ProgressReport.model_validate_json(body, context=notes)
    except ValidationError as error:
        raise ValueError(problem(error)) from None
    named = dict.fromkeys((*map(metric_name, report.non_finite or ()), *notes.non_finite))
    non_finite = tuple(each for each in named if each not in report.metrics)[:MAX_METRICS]
    return report.model_copy(
        update={"non_finite": non_finite or None, "changes": "; ".join(notes.sentences)[:MOST_NOTES]}
    )


def problem(error: ValidationError) -> str:
    """The first error of a report in one sentence."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the body"
    return f"{where}: {first['msg']}"[:300]


def is_current(job: HorovodJob, attempt: int) -> bool:
    """Whether a report is about the current attempt; a rank of a previous attempt can still run on a worker."""
    return attempt == job.status.attempt and job.status.phase in (Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """The pod that a token claims to be bound to; only the API server can confirm the claim."""

    namespace: str
    pod: str
    uid: str
    expires_at: float
    """Seconds since 1970."""

    @property
    def job(self) -> str:
        """Name of the job that has a pod with this name."""
        return names.job_name(self.pod)


def token_claim(token: str) -> TokenClaim | None:
    """The claim of a token; None if it is not a pod-bound token for progress reports."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if names.PROGRESS_AUDIENCE not in claims["aud"]:
            return None
        bound = claims["kubernetes.io"]
        pod = bound["pod"]
        return TokenClaim(str(bound["namespace"]), str(pod["name"]), str(pod["uid"]), float(claims["exp"]))
    except (LookupError, TypeError, ValueError, binascii.Error, RecursionError, OverflowError):
        return None


def is_confirmed(claim: TokenClaim, review: Mapping[str, Any]) -> bool:
    """Whether the status of a TokenReview confirms the claim."""
    user = review.get("user") or {}
    extra = user.get("extra") or {}
    return (
        review.get("authenticated") is True
        and names.PROGRESS_AUDIENCE in (review.get("audiences") or ())
        and str(user.get("username", "")).startswith(f"system:serviceaccount:{claim.namespace}:")
        and extra.get("authentication.kubernetes.io/pod-name") == [claim.pod]
        and extra.get("authentication.kubernetes.io/pod-uid") == [claim.uid]
    )


def may_report(job: HorovodJob, pod: Pod) -> bool:
    """Whether rank 0 or its deputy can run in this pod: in the first two replicas, or in any pod of an elastic job."""
    can_have_it = pod.index in names.REPORTING_INDICES or job.spec.elastic is not None
    hosts_ranks = pod.role is Role.WORKER or job.spec.launcher.as_worker
    return pod.owner_uid == job.metadata.uid and hosts_ranks and can_have_it and pod.is_active
