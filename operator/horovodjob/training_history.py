"""The history of a training in the status of a job: rows of epochs, curves, and a comparison of jobs.

Pure: jobs as the API server returns them in, plain rows for tables, plots and data frames out.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from horovodjob.api.constants import ANNOTATION_SWEEP
from horovodjob.batchai.names import display_name

Object = Mapping[str, Any]
Row = dict[str, Any]
Point = tuple[int | None, float]
"""An epoch, if it is known, and a value."""
FIELDS = ("job", "epoch", "time", "learningRate", "samplesPerSecond")
LOSSES = ("val_loss", "loss")


class Goal(StrEnum):
    """Whether the best value of a metric is its lowest or its highest."""

    MIN = "min"
    MAX = "max"


# What the document of a sweep can call them.
DIRECTIONS = {"min": Goal.MIN, "minimize": Goal.MIN, "max": Goal.MAX, "maximize": Goal.MAX}


def rows(job: Object) -> list[Row]:
    """A row for each epoch of the history: job, epoch, time, and each metric under its name.

    Learning rate and samples/s are present if the program reported them. A metric with the name of one of these
    fields is left out.
    """
    name = display_name(job)
    return [{**entry.get("metrics", {}), "job": name, **_fields(entry)} for entry in _history(job)]


def metric_names(jobs: Iterable[Object]) -> list[str]:
    """The metrics that the histories have, in the order of their first appearance."""
    entries = [entry for job in jobs for entry in _history(job)]
    return list(
        dict.fromkeys(name for entry in entries for name in (*entry.get("metrics", {}), *_names_non_finite(entry)))
    )


def default_metric(jobs: Sequence[Object]) -> str | None:
    """The metric that jobs are compared by: the loss of the validation, that of the training, or the first metric."""
    known = metric_names(jobs) or list(
        dict.fromkeys(name for job in jobs for name in _training(job).get("metrics", {}))
    )
    return next((name for name in LOSSES if name in known), known[0] if known else None)


def curve(job: Object, metric: str) -> list[tuple[int, float]]:
    """Epoch and value of a metric, or of learningRate or samplesPerSecond, in each epoch that has it."""
    return [(row["epoch"], row[metric]) for row in rows(job) if metric in row]


def non_finite_epochs(job: Object, metric: str) -> list[int]:
    """The epochs after which a metric was NaN or infinite."""
    return [int(entry["epoch"]) for entry in _history(job) if metric in _names_non_finite(entry)]


def reported_metrics(job: Object) -> list[str]:
    """The metrics that a job has reported, also those that are NaN or infinite, and the rates of its epochs."""
    training = _training(job)
    names = [name for row in rows(job) for name in row if name not in ("job", "epoch", "time")]
    return list(dict.fromkeys((*names, *training.get("metrics", {}), *non_finite(job))))


def non_finite(job: Object) -> list[str]:
    """The metrics that are NaN or infinite in the newest report."""
    return list(_training(job).get("nonFinite") or ())


def declared_goal(jobs: Sequence[Object], metric: str) -> Goal | None:
    """Which value is the best as the user has declared it for a sweep, or else as the programs of the jobs declare it.

    None if nobody does, or if they disagree. Keras calls what it minimizes the loss, so that needs no declaration.
    """
    for declared in (_goals_of_sweeps(jobs, metric), _goals_of_programs(jobs, metric)):
        if declared:
            return declared.pop() if len(declared) == 1 else None
    return Goal.MIN if metric in LOSSES else None


def _goals_of_sweeps(jobs: Iterable[Object], metric: str) -> set[Goal]:
    texts = {(job["metadata"].get("annotations") or {}).get(ANNOTATION_SWEEP, "") for job in jobs}  # one for all trials
    found = set()
    for text in texts:
        with contextlib.suppress(KeyError, ValueError, AttributeError, TypeError):  # of a job that is no trial
            sweep = json.loads(text)
            if sweep.get("metric") == metric:
                found.add(DIRECTIONS[sweep["direction"]])
    return found


def _goals_of_programs(jobs: Iterable[Object], metric: str) -> set[Goal]:
    training = [_training(job) for job in jobs]
    modes = {each.get("extremes", {}).get(metric, {}).get("mode") for each in training}
    modes |= {each["best"].get("mode") for each in training if each.get("best", {}).get("metric") == metric}
    return {Goal(mode) for mode in modes if mode is not None}


def ends(job: Object, metric: str) -> tuple[Point, Point] | None:
    """Epoch and value of the lowest and of the highest value after any epoch; None for an unknown metric.

    A program that reports no epochs has the last value in its status.
    """
    training = _training(job)
    if known := training.get("extremes", {}).get(metric):
        low, high = known["min"], known["max"]
        return (low["epoch"], low["value"]), (high["epoch"], high["value"])
    points: list[Point] = [*curve(job, metric)]  # the status is of an operator before those ends
    if not points and metric in training.get("metrics", {}):
        points = [(training.get("epoch"), training["metrics"][metric])]
    if not points:
        return None
    return min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])


def best(job: Object, metric: str, goal: Goal) -> Point | None:
    """Epoch and value of the best value after any epoch; None for an unknown metric."""
    found = ends(job, metric)
    return None if found is None else found[goal is Goal.MAX]


def settings(job: Object) -> dict[str, str]:
    """What a user can change from job to job: options of the program, variables, nodes, GPUs, image and pool."""
    spec = job["spec"]
    worker = spec.get("worker", {})
    script = spec.get("script")
    words = (
        [script["path"], *script.get("args", [])]
        if script
        else spec.get("command") or spec.get("launcherCommand") or []
    )
    variables = {each["name"]: str(each["value"]) for each in spec.get("env") or [] if "value" in each}
    return {
        **options(words),
        **variables,
        "nodes": str(worker.get("replicas", 1)),
        "gpus": str(worker.get("gpus", 1)),
        **({"slots": str(worker["slots"])} if "slots" in worker else {}),
        "image": str(spec.get("image", "")),
        **({"pool": spec["pool"]} if spec.get("pool") else {}),
    }


def options(words: Sequence[str]) -> dict[str, str]:
    """The options of a command line with their values, and its other words by position."""
    found: dict[str, str] = {}
    position = 0
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not _is_option(word):
            position += 1
            found[f"argument {position}"] = word
        elif equals:
            found[name] = value
        else:
            values = []
            while rest and not _is_option(rest[0]):
                values.append(rest.pop(0))
            found[name] = " ".join(values) or "yes"
    return found


def comparison(jobs: Sequence[Object], metric: str, goal: Goal | None) -> list[Row]:
    """A row for each job: its values of the metric, and the settings that differ between the jobs.

    The best is first, and jobs without a value are last. Without a goal, no value is the best, the order is that of
    `jobs`, and the rows have the lowest and the highest value.
    """
    jobs = sorted(jobs, key=lambda job: rank(job, metric, goal))
    all_settings = [settings(job) for job in jobs]
    names = dict.fromkeys(name for each in all_settings for name in each)
    differing = [name for name in names if len({each.get(name) for each in all_settings}) > 1]
    return [
        {
            "job": display_name(job),
            "metric": metric,
            "goal": None if goal is None else goal.value,
            **_values(job, metric, goal),
            "goodput": goodput_percent(job),
            "settings": {name: values.get(name) for name in differing},
        }
        for job, values in zip(jobs, all_settings, strict=True)
    ]


def goodput_percent(job: Object) -> float | None:
    """The share of the time of a job that became steps, in percent; None if it is unknown."""
    found = (((job.get("status") or {}).get("training") or {}).get("goodput") or {}).get("percent")
    return None if found is None else float(found)


def rank(job: Object, metric: str, goal: Goal | None) -> tuple[bool, float]:
    """A key that sorts jobs by their best value of the metric, those without a value last."""
    found = ends(job, metric)
    if found is None or goal is None:
        return found is None, 0.0
    return False, -found[1][1] if goal is Goal.MAX else found[0][1]


def _values(job: Object, metric: str, goal: Goal | None) -> Row:
    """The best value with its epoch, and both ends."""
    found = ends(job, metric)
    epoch, value = (None, None) if found is None or goal is None else found[goal is Goal.MAX]
    low, high = found or (None, None)
    return {
        "best": value,
        "epoch": epoch,
        "lowest": None if low is None else {"value": low[1], "epoch": low[0]},
        "highest": None if high is None else {"value": high[1], "epoch": high[0]},
    }


def _is_option(word: str) -> bool:
    """Whether a word begins with a dash and is no negative number."""
    return word.startswith("-") and not word[1:2].isdigit() and word[1:2] != "." and len(word) > 1


def _fields(entry: Object) -> Row:
    return {name: entry[name] for name in FIELDS if entry.get(name) is not None}


def _names_non_finite(entry: Object) -> Sequence[str]:
    return entry.get("nonFinite") or ()


def _history(job: Object) -> Sequence[Object]:
    return _training(job).get("history") or ()


def _training(job: Object) -> Object:
    return (job.get("status") or {}).get("training") or {}
