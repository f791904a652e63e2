"""Trials as jobs: the manifest of a trial, and what a job reports about its trial."""

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from horovodjob import training_history
from horovodjob.api.constants import (
    ANNOTATION_PARAMETERS,
    ANNOTATION_PRUNED,
    ANNOTATION_SWEEP,
    LABEL_EXPERIMENT,
    LABEL_SWEEP,
    LABEL_TRIAL,
    ConditionType,
    Phase,
    Reason,
)
from horovodjob.conversion import ConversionError
from horovodjob.sweeps import definition as definitions
from horovodjob.sweeps import template
from horovodjob.sweeps.definition import Definition, Measure
from horovodjob.sweeps.parameters import Value
from horovodjob.training_history import Goal

Object = dict[str, Any]
# Lines of the start scripts, and of mpirun outside its notices between lines of dashes.
NOT_OF_THE_PROGRAM = re.compile(r"\S+Z horovodjob: |mpirun |rank \d+ on \S+ ended with exit code ")
MOST_OF_A_LINE = 300


class State(StrEnum):
    """States of a trial; a pruned one was terminated because it was worse than others."""

    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as its job reports it. `points` are epochs with values, `value` the objective of a complete trial."""

    number: int
    job: str
    parameters: Mapping[str, Value]
    state: State
    points: tuple[tuple[int, float], ...]
    value: float | None
    epoch: int | None
    message: str = ""
    is_terminated: bool = False
    """Whether its job was ended by a user."""
    setup: str = ""
    """What it has in common with the trials that it is compared with, see Definition.setup."""


def job_name(definition: Definition, number: int) -> str:
    """The name of a trial's job: of two programs that create the same trial, one gets AlreadyExists."""
    return f"{definition.name}-{number}"


def trial_job(definition: Definition, number: int, values: Mapping[str, Value], namespace: str) -> Object:
    """The manifest of a trial's job, with all that a later program needs to continue."""
    name = job_name(definition, number)
    metadata = definition.job.get("metadata") or {}
    labels = {
        LABEL_EXPERIMENT: definition.name,
        **(metadata.get("labels") or {}),
        LABEL_SWEEP: definition.name,
        LABEL_TRIAL: str(number),
    }
    annotations = {
        **(metadata.get("annotations") or {}),
        ANNOTATION_SWEEP: definitions.source_text(definition),
        ANNOTATION_PARAMETERS: json.dumps(values, ensure_ascii=False),
    }
    return {
        "apiVersion": definition.job["apiVersion"],
        "kind": definition.job["kind"],
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": template.filled(definition.job["spec"], {**values, "trial": number, "job": name}),
    }


def definition_of(job: Object) -> Definition:
    """The sweep of a trial's job. Raises ValueError with a sentence."""
    name = job["metadata"]["name"]
    try:
        return definitions.parse(json.loads(job["metadata"]["annotations"][ANNOTATION_SWEEP]))
    except (KeyError, ValueError) as error:
        reason = "; ".join(map(str, error.problems)) if isinstance(error, ConversionError) else "it is no JSON"
        raise ValueError(f"the annotation {ANNOTATION_SWEEP} of job {name} has no sweep: {reason}") from None


def setup_of(job: Object) -> str:
    """The setup of a trial's job, see Definition.setup. Raises ValueError with a sentence."""
    text = (job["metadata"].get("annotations") or {}).get(ANNOTATION_SWEEP)
    return _setup(text) if isinstance(text, str) else definition_of(job).setup


@functools.lru_cache(maxsize=16)
def _setup(text: str) -> str:
    try:
        return definitions.parse(json.loads(text)).setup
    except ValueError:
        return ""


def trial(job: Object, definition: Definition) -> Trial:
    """The trial of a job. Raises ValueError with a sentence."""
    metadata = job["metadata"]
    annotations = metadata.get("annotations") or {}
    try:
        number, values = int(metadata["labels"][LABEL_TRIAL]), json.loads(annotations[ANNOTATION_PARAMETERS])
    except (KeyError, ValueError):
        values = number = None
    if number is None or not isinstance(values, dict):
        raise ValueError(f"job {metadata['name']} has lost number or parameters of its trial: delete the job")
    points = tuple(each for each in training_history.curve(job, definition.metric) if math.isfinite(each[1]))
    epoch, value = _objective(job, definition) or (None, None)
    state, message = _state(job, definition, value)
    if state is State.COMPLETE and value is None:
        value = -math.inf if definition.goal is Goal.MAX else math.inf
    return Trial(
        number=number,
        job=metadata["name"],
        parameters=values,
        state=state,
        points=points,
        value=value,
        epoch=epoch,
        message=message,
        is_terminated=_condition(job, ConditionType.FAILED).get("reason") == Reason.TERMINATED,
        setup=setup_of(job),
    )


def deleted(trial: Trial) -> Trial:
    """The trial after its job was deleted before its end."""
    return replace(trial, state=State.FAILED, message="its job was deleted", is_terminated=True)


def best(trials: Mapping[int, Trial], goal: Goal | None) -> Trial | None:
    """The complete trial with the best finite value, of several the first; None without a goal."""
    found = ends(trials)
    return None if found is None or goal is None else found[goal is Goal.MAX]


def ends(trials: Mapping[int, Trial]) -> tuple[Trial, Trial] | None:
    """The complete trials with the lowest and with the highest finite value, of several the first."""
    values = {
        number: each.value
        for number, each in sorted(trials.items())
        if each.state is State.COMPLETE and each.value is not None and math.isfinite(each.value)
    }
    if not values:
        return None
    return trials[min(values, key=values.__getitem__)], trials[max(values, key=values.__getitem__)]


def record(trial: Trial, metric: str) -> Object:
    """The trial as the command line prints it."""
    return {
        "trial": trial.number,
        "job": trial.job,
        "state": trial.state.value,
        "metric": metric,
        "value": trial.value if trial.value is not None and math.isfinite(trial.value) else None,
        "epoch": trial.epoch,
        "parameters": dict(trial.parameters),
        "setup": trial.setup,
        "message": trial.message or None,
    }


def _objective(job: Object, definition: Definition) -> tuple[int | None, float] | None:
    """Epoch and value: the newest, or the best of a known goal. The status always keeps the newest epoch.

    None also for a metric that is NaN or infinite at the end.
    """
    metric = definition.metric
    goal = definition.goal if definition.measure is Measure.BEST else None
    if goal is None and metric in training_history.non_finite(job):
        return None
    if goal is not None:
        found = training_history.best(job, metric, goal)
    elif points := training_history.curve(job, metric):
        found = points[-1]
    else:  # of no epoch in the history: the newest that is known
        found = max(training_history.ends(job, metric) or (), key=lambda point: point[0] or 0, default=None)
    return found if found is not None and math.isfinite(found[1]) else None


def _state(job: Object, definition: Definition, value: float | None) -> tuple[State, str]:
    phase = (job.get("status") or {}).get("phase")
    pruned = (job["metadata"].get("annotations") or {}).get(ANNOTATION_PRUNED)
    if pruned is not None:
        return State.PRUNED, f"pruned at epoch {pruned}"
    failure = _condition(job, ConditionType.FAILED)
    if phase == Phase.FAILED:
        message = _failure(job, str(failure.get("message") or "no reason is known"))
        is_result = failure.get("reason") != Reason.TERMINATED and _is_diverged(job, definition)
        diverged = f"{definition.metric} is NaN or infinite, the worst result; the job ended: {message}"
        return (State.COMPLETE, diverged) if is_result else (State.FAILED, message)
    if phase != Phase.SUCCEEDED:
        return State.RUNNING, ""
    if value is not None:
        return State.COMPLETE, ""
    if _is_diverged(job, definition):
        return State.COMPLETE, f"{definition.metric} is NaN or infinite, the worst result"
    reported = ", ".join(training_history.reported_metrics(job)) or "no metric at all"
    return State.FAILED, f"it succeeded and reported no {definition.metric}, but {reported}"


def _is_diverged(job: Object, definition: Definition) -> bool:
    """Whether the metric is NaN or infinite now, or the loss is before the metric was reported."""
    names = training_history.non_finite(job)
    is_reported = bool(training_history.curve(job, definition.metric))
    return definition.metric in names or ("loss" in names and not is_reported)


def _failure(job: Object, message: str) -> str:
    """Why the job failed, in the words of its program, or else with its last line."""
    if f" ({Reason.RANK_FAILED}: " in message:  # the operator has found them
        return message
    errors = (job.get("status") or {}).get("errors") or [{}]
    line = program_line(str(errors[-1].get("message") or ""))
    return message if not line or line in message else f"{message}: {line}"


def program_line(log: str) -> str:
    """The last line of a log that is neither the operator's nor part of a notice of mpirun."""
    is_notice = False
    for line in map(str.strip, reversed(log.splitlines())):
        if line and not line.strip("-"):
            is_notice = not is_notice
        elif line and not is_notice and not NOT_OF_THE_PROGRAM.match(line):
            return line[:MOST_OF_A_LINE]
    return ""


def _condition(job: Object, type_: ConditionType) -> Object:
    conditions = (job.get("status") or {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == type_ and each["status"] == "True"), {})
