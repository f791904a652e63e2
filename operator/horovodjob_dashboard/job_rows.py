"""Rows of the list of jobs: what a row shows, and which rows a page has.

Pure: jobs as the API server returns them in, rows out.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from horovodjob.api.constants import LABEL_EXPERIMENT, LABEL_OWNER, LABEL_SWEEP, Phase, Reason
from horovodjob.batchai.names import display_name
from horovodjob.client.jobs.batchai_records import message, queue_place, worker
from horovodjob.client.jobs.job_times import active_seconds

ROWS_OF_A_PAGE = 100
LONGEST_TEXT = 300
NEWEST_FIRST = "-created"
TIMES: dict[str, Callable[[Any], Any]] = {
    "activeSeconds": int,
    "startTime": str,
    "completionTime": str,
    "runningTime": str,
    "attempt": int,
}
# Between the words of a program that failed and what the operator says about its end.
OPERATOR_WORDS = f" ({Reason.RANK_FAILED}: "
_ENDED = re.compile(r"(attempt \d+ ended, )?(.*)", re.DOTALL)
# The operator's message about a training without progress: since when, and the ranks that the others wait for.
_STALL = re.compile(r"([^()]{0,100}no step since \S+(?: \(usual: [^)]*\))?): (.+)", re.DOTALL)
# What deployed a job, by the label or annotation that each tool sets on its objects.
DEPLOYERS = {
    "meta.helm.sh/release-name": "Helm release",
    "argocd.argoproj.io/tracking-id": "Argo CD application",
    "argocd.argoproj.io/instance": "Argo CD application",
    "kustomize.toolkit.fluxcd.io/name": "Flux Kustomization",
    "helm.toolkit.fluxcd.io/name": "Flux HelmRelease",
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the list."""

    namespace: str
    name: str
    shown_name: str
    experiment: str
    sweep: str
    owner: str
    """Who the job belongs to, or what deployed it; empty if nothing names either."""
    phase: str
    sentence: str
    """Why the job is in this phase; of a program that failed, its own words; of one that hangs, where."""
    detail: str
    """What the operator adds to the cause of a failure or a stall; empty without one."""
    percent: float | None
    """Completed part of the training, 0 to 100."""
    eta: str
    workers: int
    gpus: int
    """GPUs of all workers."""
    is_spot: bool
    queue: str
    """LocalQueue of Kueue; empty without one."""
    position: int | None
    """Position in the queue, from 1, while the job waits in it."""
    created: str
    times: Mapping[str, Any] = field(repr=False, compare=False)
    """The fields of the status that give the duration."""

    @property
    def is_finished(self) -> bool:
        """Whether the job is Succeeded or Failed, which never changes."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def words(self) -> str:
        """What the filter for text searches."""
        texts = (self.shown_name, self.experiment, self.owner, self.sentence, self.detail, self.queue)
        return f"{self.namespace}/{self.name} {' '.join(texts)}".lower()


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters, order and page of the list, as the address of the page has them."""

    text: str = ""
    phase: str = ""
    experiment: str = ""
    owner: str = ""
    namespace: str = ""
    sort: str = NEWEST_FIRST
    page: int = 1

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> "Selection":
        """The selection in a query string; unknown and invalid values have no effect."""
        page = query.get("page", "")
        sort = query.get("sort", "")
        return cls(
            text=query.get("text", "").strip(),
            phase=query.get("phase", ""),
            experiment=query.get("experiment", ""),
            owner=query.get("owner", ""),
            namespace=query.get("namespace", ""),
            sort=sort if sort.removeprefix("-") in SORTED_BY else NEWEST_FIRST,
            page=max(int(page), 1) if page.isdecimal() and len(page) < 9 else 1,
        )

    def has(self, row: JobRow) -> bool:
        """Whether the filters select the row."""
        return (
            (not self.phase or row.phase == self.phase)
            and (not self.experiment or row.experiment == self.experiment)
            and (not self.owner or row.owner == self.owner)
            and (not self.namespace or row.namespace == self.namespace)
            and all(word in row.words for word in self.text.lower().split())
        )

    def address(self, **changes: str | int) -> str:
        """The query string of this selection with changes; it has only what is not the default."""
        default = asdict(Selection())
        values = asdict(self) | {"page": 1} | changes
        return "?" + urlencode({name: value for name, value in values.items() if value != default[name]})

    def sorted_by(self, column: str) -> str:
        """The query string of the order by a column, and of the reverse order if that is the present one."""
        first = f"-{column}" if column in LARGEST_FIRST else column
        reverse = first.removeprefix("-") if first.startswith("-") else f"-{column}"
        return self.address(sort=reverse if self.sort == first else first)

    def direction(self, column: str) -> str:
        """The order of a column as the attribute aria-sort."""
        if self.sort.removeprefix("-") != column:
            return "none"
        return "descending" if self.sort.startswith("-") else "ascending"


PHASES = {phase.value: number for number, phase in enumerate(Phase)}
# The rows of equal values are in the order of their names. Times and amounts begin with the largest.
SORTED_BY: dict[str, Callable[[JobRow, datetime], Any]] = {
    "name": lambda row, _: row.shown_name,
    "phase": lambda row, _: PHASES.get(row.phase, len(PHASES)),
    "progress": lambda row, _: row.percent or 0,
    "workers": lambda row, _: row.workers,
    "gpus": lambda row, _: row.gpus,
    "queue": lambda row, _: (not row.queue, row.queue, row.position is None, row.position or 0),
    "experiment": lambda row, _: (not row.experiment, row.experiment),
    "owner": lambda row, _: (not row.owner, row.owner),
    "created": lambda row, _: row.created,
    "duration": lambda row, now: active_seconds(row.times, now) or 0,
}
# The columns of the list by what they are sorted by, in the order of the cells of a row.
COLUMNS = {
    "name": "Name",
    "phase": "Phase",
    "progress": "Progress",
    "workers": "Workers",
    "gpus": "GPUs",
    "queue": "Queue",
    "experiment": "Experiment",
    "owner": "Owner",
    "created": "Age",
    "duration": "Duration",
}
LARGEST_FIRST = ("progress", "workers", "gpus", "created", "duration")


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a page, and how many there are on all pages."""

    rows: list[JobRow]
    total: int
    number: int
    pages: int


def row(job: Mapping[str, Any]) -> JobRow:
    """The row of a job. A job that it cannot show, such as one of a newer release, has a row that says so."""
    try:
        return _row(job)
    except Exception as error:  # one object must not cost the page of all
        metadata = job["metadata"]
        return JobRow(
            namespace=metadata["namespace"],
            name=metadata["name"],
            shown_name=metadata["name"],
            experiment="",
            sweep="",
            owner="",
            phase="Unknown",
            sentence=f"The dashboard cannot show this job ({type(error).__name__}): see `kubectl get hvj -o yaml`.",
            detail="",
            percent=None,
            eta="",
            workers=0,
            gpus=0,
            is_spot=False,
            queue="",
            position=None,
            created=str(metadata.get("creationTimestamp", "")),
            times={},
        )


def _row(job: Mapping[str, Any]) -> JobRow:
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    training = status.get("training") or {}
    progress = training.get("progress")
    workers, queue = worker(spec, "replicas"), queue_place(status) or {}
    labels = metadata.get("labels") or {}
    sentence, detail = cause(message(status) or "")
    return JobRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        shown_name=_short(display_name(job)),
        experiment=str(labels.get(LABEL_EXPERIMENT, "")),
        sweep=str(labels.get(LABEL_SWEEP, "")),
        owner=owner(metadata),
        phase=_short(str(status.get("phase") or Phase.QUEUED.value)),
        sentence=_short(sentence),
        detail=_short(detail),
        percent=None if progress is None else round(100 * float(progress), 1),
        eta=_short(str(training.get("eta") or "")),
        workers=workers,
        gpus=workers * worker(spec, "gpus"),
        is_spot=spec.get("spot") is True,
        queue=_short(str(queue.get("name", ""))),
        position=None if queue.get("position") is None else int(queue["position"]),
        created=metadata["creationTimestamp"],
        times={name: kind(status[name]) for name, kind in TIMES.items() if name in status},
    )


def cause(text: str) -> tuple[str, str]:
    """The cause of a failure or a stall, and what the operator says about it; of another message, all of it.

    `ValueError: x (RankFailed: mpirun ended with exit code 3; attempt 1)` begins with the words of the program, and
    `attempt 1 ended, ValueError: x (RankFailed: ...); attempt 2 starts at 12:00:00Z` contains them. `no step since
    14:32:10Z: rank 5 (worker 2, node gpu-7) is stopped` ends with the rank that the others wait for.
    """
    if stall := _STALL.fullmatch(text):
        return stall[2], stall[1]
    before, separator, after = text.rpartition(OPERATOR_WORDS)
    found = _ENDED.fullmatch(before) if separator else None
    attempt, words = found.groups("") if found else ("", "")
    if not words:
        return text, ""
    added, _, next_attempt = after.rpartition(")")
    return words, f"{attempt}{Reason.RANK_FAILED}: {added}{next_attempt}"


def owner(metadata: Mapping[str, Any]) -> str:
    """The label for it, or what deployed the job: the API server does not record who created an object."""
    known = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    if named := known.get(LABEL_OWNER):
        return _short(str(named))
    for key, kind in DEPLOYERS.items():
        if name := known.get(key):
            return _short(f"{kind} {str(name).partition(':')[0]}")  # Argo CD adds the object to the application.
    controller = next((each for each in metadata.get("ownerReferences") or [] if each.get("controller")), None)
    return f"{controller['kind']} {controller['name']}" if controller else ""


def _short(text: str) -> str:
    """The text in the room that a row has for it."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def page(rows: Iterable[JobRow], selection: Selection, now: datetime) -> Page:
    """The page of the selection; a page after the last one is the last one."""
    key = SORTED_BY[selection.sort.removeprefix("-")]
    found = sorted(filter(selection.has, rows), key=lambda row: (row.name, row.namespace))
    found.sort(key=lambda row: key(row, now), reverse=selection.sort.startswith("-"))
    pages = max(-(-len(found) // ROWS_OF_A_PAGE), 1)
    number = min(selection.page, pages)
    first = (number - 1) * ROWS_OF_A_PAGE
    return Page(found[first : first + ROWS_OF_A_PAGE], len(found), number, pages)
