"""What the comparison shows of jobs: a table with what differs between them, their curves, and their parameters.

Pure: jobs as the API server returns them in, rows, columns and charts out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from horovodjob.api.constants import ANNOTATION_PARAMETERS
from horovodjob.escaping import shortened
from horovodjob.training_history import Goal, comparison, declared_goal, default_metric, metric_names, rank
from horovodjob_dashboard.curves import charts_of_jobs
from horovodjob_dashboard.job_rows import row
from horovodjob_dashboard.parallel_axes import Axes, finite_number, parallel_axes

Object = dict[str, Any]
MOST_CURVES = 8
MOST_ROWS = 500
SETTING = "setting:"
VALUES = ("best", "epoch", "lowest", "highest")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the address of the page says beside the jobs."""

    kept: tuple[tuple[str, str], ...]
    """The part of the query that orders do not change."""
    metric: str = ""
    goal: str = ""
    sort: str = ""
    is_descending: bool = False

    @classmethod
    def from_query(cls, query: Any) -> "Choice":
        """The choice in a query string; unknown values have no effect."""
        kept = tuple((name, value) for name, value in query.items() if name not in ("sort", "descending", "since"))
        sort = query.get("sort", "")
        return cls(kept, query.get("metric", ""), query.get("goal", ""), sort, bool(query.get("descending")))

    def sorted_by(self, column: str) -> str:
        """The query string of the order by a column, and of the reverse order if that is the present one."""
        reverse = [("descending", "1")] if self.sort == column and not self.is_descending else []
        return "?" + urlencode([*self.kept, ("sort", column), *reverse])

    def direction(self, column: str) -> str:
        """The order of a column as the attribute aria-sort."""
        return "none" if self.sort != column else "descending" if self.is_descending else "ascending"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, by what it is sorted by."""

    key: str
    title: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class ComparedJob:
    """A row of the table."""

    name: str
    """Namespace and name."""
    shown_name: str
    phase: str
    color: int | None
    """The color of its curves; None if it has none."""
    values: Mapping[str, Any]
    """What the job has in the columns, by their keys."""

    def text(self, column: Column) -> str:
        """The cell of a column."""
        value = self.values.get(column.key)
        if isinstance(value, Mapping):
            epoch = value["epoch"]
            return f"{value['value']:.5g}" + (f" (epoch {epoch})" if epoch is not None else "")
        return "" if value is None else f"{value:.5g}" if isinstance(value, float) else shortened(str(value))


def comparison_of(jobs: Mapping[str, Object], choice: Choice) -> Object:
    """The values of the template, for jobs by namespace and name.

    Those that it cannot compare, such as one of a newer release, are named in `odd`.
    """
    try:
        return _comparison_of(jobs, choice) | {"odd": []}
    except Exception:  # one object must not cost the page of all
        readable = {name: job for name, job in jobs.items() if _is_readable(name, job, choice)}
        return _comparison_of(readable, choice) | {"odd": [name for name in jobs if name not in readable]}


def _is_readable(name: str, job: Object, choice: Choice) -> bool:
    try:
        _comparison_of({name: job}, choice)
    except Exception:
        return False
    return True


def _comparison_of(jobs: Mapping[str, Object], choice: Choice) -> Object:
    metrics = metric_names(jobs.values())
    metric = choice.metric if choice.metric in metrics else default_metric(list(jobs.values())) or ""
    goal = Goal(choice.goal) if choice.goal in set(Goal) else declared_goal([*jobs.values()], metric)
    names = sorted(jobs, key=lambda name: rank(jobs[name], metric, goal))[:MOST_ROWS]
    shown = {name: jobs[name] for name in names[:MOST_CURVES]}
    rows = dict(zip(names, comparison([jobs[name] for name in names], metric, goal), strict=True))
    settings = _settings(jobs, rows)
    found = [
        _row(name, jobs[name], each, settings[name], color if color < MOST_CURVES else None)
        for color, (name, each) in enumerate(rows.items())
    ]
    columns = _columns(found, metric, goal, list(next(iter(settings.values()), {})))
    return {
        "total": len(jobs),
        "metrics": metrics,
        "metric": metric,
        "goal": goal,
        "columns": columns,
        "rows": _ordered(found, choice),
        "curves": len(shown),
        "charts": charts_of_jobs(_without_common_namespace(shown)),
        "axes": _axes(found, columns, metric, goal),
    }


def _row(name: str, job: Object, compared: Object, settings: Mapping[str, Any], color: int | None) -> ComparedJob:
    summary = row(job)
    values = {key: compared[key] for key in VALUES} | {f"{SETTING}{key}": value for key, value in settings.items()}
    return ComparedJob(
        name, summary.shown_name, summary.phase, color, {"job": summary.shown_name, "phase": summary.phase, **values}
    )


def _settings(jobs: Mapping[str, Object], rows: Mapping[str, Object]) -> dict[str, dict[str, Any]]:
    """The parameters of a sweep, and the other settings that differ between the jobs."""
    parameters = {name: _parameters(jobs[name]) for name in rows}
    names = list(dict.fromkeys(key for each in parameters.values() for key in each))
    known = {f"--{name.replace('_', '-')}" for name in names} | {f"--{name}" for name in names} | {*names}
    others = [name for name in next(iter(rows.values()), {"settings": {}})["settings"] if name not in known]
    return {
        name: {
            **{key: parameters[name].get(key) for key in names},
            **{key: each["settings"].get(key) for key in others},
        }
        for name, each in rows.items()
    }


def _parameters(job: Object) -> dict[str, Any]:
    """What a sweep has chosen for its trial; nothing if the annotation is not readable."""
    try:
        found = json.loads((job["metadata"].get("annotations") or {}).get(ANNOTATION_PARAMETERS) or "{}")
    except ValueError:
        return {}
    scalars = found.items() if isinstance(found, dict) else ()
    return {str(key): value for key, value in scalars if isinstance(value, str | int | float)}


def _columns(rows: Sequence[ComparedJob], metric: str, goal: Goal | None, settings: Iterable[str]) -> list[Column]:
    ends = {"best": f"Best {metric}", "epoch": "Epoch"} if goal else {"lowest": f"Lowest {metric}"}
    ends |= {} if goal else {"highest": f"Highest {metric}"}
    found = [Column(key, title, is_number=True) for key, title in ends.items() if metric]
    keys = {f"{SETTING}{name}": name for name in settings}
    found += [
        Column(key, shortened(title), all(finite_number(each.values.get(key)) is not None for each in rows))
        for key, title in keys.items()
    ]
    return [Column("job", "Job", is_number=False), Column("phase", "Phase", is_number=False), *found]


def _ordered(rows: Sequence[ComparedJob], choice: Choice) -> list[ComparedJob]:
    """The rows in the chosen order, those without a value last; else the best first."""
    known = [each for each in rows if _value(each, choice.sort) is not None]
    numbers = [finite_number(_value(each, choice.sort)) for each in known]
    keys: Sequence[Any] = numbers if None not in numbers else [str(_value(each, choice.sort)) for each in known]
    order = sorted(range(len(known)), key=lambda index: keys[index], reverse=choice.is_descending)
    return [*(known[index] for index in order), *(each for each in rows if _value(each, choice.sort) is None)]


def _value(row: ComparedJob, key: str) -> Any:
    value = row.values.get(key)
    return value["value"] if isinstance(value, Mapping) else value


def _axes(rows: Sequence[ComparedJob], columns: Sequence[Column], metric: str, goal: Goal | None) -> Axes | None:
    """Parallel coordinates of the settings and the metric, of the jobs that have all of them."""
    last = "best" if goal else "lowest"
    keys = [each.key for each in columns if each.key.startswith(SETTING)]
    titles = [key.removeprefix(SETTING) for key in keys]
    lines = {
        each.shown_name: [*(each.values.get(key) for key in keys), _value(each, last)]
        for each in rows
        if all(_value(each, key) is not None for key in (*keys, last))
    }
    return parallel_axes([*titles, f"{last} {metric}"], lines, is_lower_better=goal is not Goal.MAX)


def _without_common_namespace(jobs: dict[str, Object]) -> dict[str, Object]:
    """The jobs by their short names if all are in one namespace."""
    if len({name.partition("/")[0] for name in jobs}) > 1:
        return jobs
    return {name.partition("/")[2]: job for name, job in jobs.items()}
