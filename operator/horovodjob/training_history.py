"""The history of a training in the status of a job: rows of epochs, curves, and a comparison of jobs.

Pure: jobs as the API server returns them in, plain rows for tables, plots and data frames out.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from horovodjob.batchai.names import display_name

Object = Mapping[str, Any]
Row = dict[str, Any]
FIELDS = ("job", "epoch", "time", "learningRate", "samplesPerSecond")
# Parts of names of metrics that are better when they are higher, as Keras names them.
MAXIMIZED = ("acc", "auc", "precision", "recall", "f1", "iou", "r2", "similarity", "top_")


class Goal(StrEnum):
    """Whether the best value of a metric is its lowest or its highest."""

    MIN = "min"
    MAX = "max"


def rows(job: Object) -> list[Row]:
    """A row for each epoch of the history: job, epoch, time, and each metric under its name.

    Learning rate and samples/s are present if the program reported them. A metric with the name of one of these
    fields is left out.
    """
    name = display_name(job)
    return [{**entry.get("metrics", {}), "job": name, **_fields(entry)} for entry in _history(job)]


def metric_names(jobs: Iterable[Object]) -> list[str]:
    """The metrics that the histories have, in the order of their first appearance."""
    return list(dict.fromkeys(name for job in jobs for entry in _history(job) for name in entry.get("metrics", {})))


def default_metric(jobs: Sequence[Object]) -> str | None:
    """The metric that jobs are compared by: the loss of the validation, that of the training, or the first metric."""
    known = metric_names(jobs) or list(
        dict.fromkeys(name for job in jobs for name in _training(job).get("metrics", {}))
    )
    return next((name for name in ("val_loss", "loss") if name in known), known[0] if known else None)


def curve(job: Object, metric: str) -> list[tuple[int, float]]:
    """Epoch and value of a metric, or of learningRate or samplesPerSecond, in each epoch that has it."""
    return [(row["epoch"], row[metric]) for row in rows(job) if metric in row]


def goal_of(metric: str) -> Goal:
    """The usual goal of a metric by its name: accuracy and the like are maximized, losses and errors minimized."""
    words = metric.lower()
    return Goal.MAX if any(part in words for part in MAXIMIZED) else Goal.MIN


def best(job: Object, metric: str, goal: Goal | None = None) -> tuple[int | None, float] | None:
    """Epoch and value of the best epoch in the history; of a job without history, the last value in its status."""
    points: list[tuple[int | None, float]] = list(curve(job, metric))
    if not points:
        training = _training(job)
        points = [(training.get("epoch"), value) for key, value in training.get("metrics", {}).items() if key == metric]
    choose = max if (goal or goal_of(metric)) is Goal.MAX else min
    return choose(points, key=lambda point: point[1], default=None)


def settings(job: Object) -> dict[str, str]:
    """What a user can change from job to job: options of the program, variables, nodes, GPUs, image and pool."""
    spec = job["spec"]
    worker = spec.get("worker", {})
    script = spec.get("script")
    words = [script["path"], *script.get("args", [])] if script else spec.get("command") or spec["launcherCommand"]
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


def comparison(jobs: Sequence[Object], metric: str, goal: Goal | None = None) -> list[Row]:
    """A row for each job, the best first: its best value of the metric, and the settings that differ between the jobs.

    Jobs without a value come last, with None.
    """
    jobs = sorted(jobs, key=lambda job: rank(job, metric, goal))
    all_settings = [settings(job) for job in jobs]
    names = dict.fromkeys(name for each in all_settings for name in each)
    differing = [name for name in names if len({each.get(name) for each in all_settings}) > 1]
    found = []
    for job, values in zip(jobs, all_settings, strict=True):
        epoch, value = best(job, metric, goal) or (None, None)
        found.append(
            {
                "job": display_name(job),
                "metric": metric,
                "best": value,
                "epoch": epoch,
                "settings": {name: values.get(name) for name in differing},
            }
        )
    return found


def rank(job: Object, metric: str, goal: Goal | None = None) -> tuple[bool, float]:
    """A key that sorts jobs by their best value of the metric: the best first, those without a value last."""
    _, value = best(job, metric, goal) or (None, None)
    sign = -1 if (goal or goal_of(metric)) is Goal.MAX else 1
    return value is None, sign * (value or 0)


def _is_option(word: str) -> bool:
    """Whether a word begins with a dash and is no negative number."""
    return word.startswith("-") and not word[1:2].isdigit() and word[1:2] != "." and len(word) > 1


def _fields(entry: Object) -> Row:
    return {name: entry[name] for name in FIELDS if entry.get(name) is not None}


def _history(job: Object) -> Sequence[Object]:
    return _training(job).get("history") or ()


def _training(job: Object) -> Object:
    return (job.get("status") or {}).get("training") or {}
