"""Rows of the list of jobs: what a row shows, and which rows a page has.

Pure: jobs as the API server returns them in, rows out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horovodjob.api.constants import LABEL_EXPERIMENT, Phase
from horovodjob.batchai.names import display_name
from horovodjob_cli.jobs.batchai_records import message, queue_text, worker

ROWS_OF_A_PAGE = 100
NEWEST_FIRST = "-created"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the list."""

    namespace: str
    name: str
    shown_name: str
    experiment: str
    phase: str
    sentence: str
    percent: float | None
    """Completed part of the training, 0 to 100."""
    eta: str
    workers: int
    gpus: int
    """GPUs of all workers."""
    queue: str
    created: str
    status: Mapping[str, Any] = field(repr=False)

    @property
    def is_finished(self) -> bool:
        """Whether the job is Succeeded or Failed, which never changes."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def words(self) -> str:
        """What the filter for text searches."""
        return f"{self.namespace}/{self.name} {self.shown_name} {self.experiment} {self.sentence} {self.queue}".lower()


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters, order and page of the list, as the address of the page has them."""

    text: str = ""
    phase: str = ""
    experiment: str = ""
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
            namespace=query.get("namespace", ""),
            sort=sort if sort.removeprefix("-") in SORTED_BY else NEWEST_FIRST,
            page=max(int(page), 1) if page.isdecimal() and len(page) < 9 else 1,
        )

    def has(self, row: JobRow) -> bool:
        """Whether the filters select the row."""
        return (
            (not self.phase or row.phase == self.phase)
            and (not self.experiment or row.experiment == self.experiment)
            and (not self.namespace or row.namespace == self.namespace)
            and all(word in row.words for word in self.text.lower().split())
        )


SORTED_BY: dict[str, Callable[[JobRow], Any]] = {
    "name": lambda row: (row.name, row.namespace),
    "phase": lambda row: (list(Phase).index(Phase(row.phase)), row.name),
    "progress": lambda row: (row.percent or 0, row.name),
    "gpus": lambda row: (row.gpus, row.name),
    "created": lambda row: (row.created, row.name),
}


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a page, and how many there are on all pages."""

    rows: list[JobRow]
    total: int
    number: int
    pages: int


def row(job: Mapping[str, Any]) -> JobRow:
    """The row of a job."""
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    training = status.get("training") or {}
    progress = training.get("progress")
    workers = worker(spec, "replicas")
    return JobRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        shown_name=display_name(job),
        experiment=(metadata.get("labels") or {}).get(LABEL_EXPERIMENT, ""),
        phase=status.get("phase") or Phase.QUEUED.value,
        sentence=message(status) or "",
        percent=None if progress is None else round(100 * progress, 1),
        eta=training.get("eta") or "",
        workers=workers,
        gpus=workers * worker(spec, "gpus"),
        queue=queue_text(status),
        created=metadata["creationTimestamp"],
        status=status,
    )


def page(rows: Iterable[JobRow], selection: Selection) -> Page:
    """The page of the selection; a page after the last one is the last one."""
    found = sorted(filter(selection.has, rows), key=SORTED_BY[selection.sort.removeprefix("-")])
    if selection.sort.startswith("-"):
        found.reverse()
    pages = max(-(-len(found) // ROWS_OF_A_PAGE), 1)
    number = min(selection.page, pages)
    first = (number - 1) * ROWS_OF_A_PAGE
    return Page(found[first : first + ROWS_OF_A_PAGE], len(found), number, pages)
