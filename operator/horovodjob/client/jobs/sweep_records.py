"""The jobs of a sweep as its record: its definition, its trials, and the lines that describe them."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from horovodjob.api.constants import LABEL_SWEEP, LABEL_TRIAL
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, NotFound, UsageError
from horovodjob.client.jobs import document_files, manifests
from horovodjob.conversion import ConversionError
from horovodjob.sweeps import definition as definitions
from horovodjob.sweeps import trials as sweep_trials
from horovodjob.sweeps.definition import Definition
from horovodjob.sweeps.parameters import Value, text
from horovodjob.sweeps.trials import State, Trial
from horovodjob.training_history import LOSSES, Goal, declared_goal

Object = dict[str, Any]


def jobs_of(name: str, namespace: str) -> list[Object]:
    """The jobs of a sweep, by trial. Raises NotFound."""
    listed = kube.custom().list_namespaced_custom_object(**selection(name, namespace))
    jobs = [job for job in listed["items"] if is_trial(job)]
    if not jobs:
        raise NotFound(f"sweep {name} has no job in namespace {namespace}; see `hvj experiment list`")
    return sorted(jobs, key=lambda job: (job["metadata"]["creationTimestamp"], len(job["metadata"]["name"])))


def definition_of(jobs: list[Object]) -> Definition:
    """The definition that the newest job has. Raises UsageError."""
    try:
        return sweep_trials.definition_of(jobs[-1])
    except ValueError as error:
        raise UsageError(str(error)) from None


def trials_of(jobs: list[Object], definition: Definition) -> dict[int, Trial]:
    """The trials of the jobs, by number, also those of other setups. Raises UsageError."""
    try:
        found = [sweep_trials.trial(job, definition) for job in jobs]
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {trial.number: trial for trial in sorted(found, key=lambda trial: trial.number)}


def compared(trials: Mapping[int, Trial], definition: Definition) -> dict[int, Trial]:
    """The trials with the setup of the definition: the same code, image, settings and search."""
    return {number: trial for number, trial in trials.items() if trial.setup == definition.setup}


def parameters_text(values: Mapping[str, Value]) -> str:
    """The values on one line, numbers with four digits."""
    return " ".join(
        f"{name}={f'{value:.4g}' if isinstance(value, float) else text(value)}" for name, value in values.items()
    )


def trial_text(trial: Trial, metric: str) -> str:
    """The end of a trial on one line."""
    match trial.state:
        case State.COMPLETE:
            return trial.message or f"{metric} {trial.value:.5g}"
        case State.PRUNED:
            return trial.message + (f", {metric} {trial.points[-1][1]:.5g}" if trial.points else "")
        case State.FAILED:
            return f"failed: {trial.message}"
    return "running"


def parsed(where: Path | str, source: Mapping[str, Any], **changes: Any) -> Definition:
    """The definition of a document, with the changes that are not None. Raises UsageError with all problems.

    The direction of the document is that of its own metric.
    """
    new = {key: value for key, value in changes.items() if value is not None}
    kept = {**source}
    if new.get("metric", kept.get("metric")) != kept.get("metric"):
        kept.pop("direction", None)
    try:
        return definitions.parse({**kept, **new})
    except ConversionError as error:
        raise manifests.refused(Path(where), error.problems) from None


def of_file(path: Path, **changes: Any) -> Definition:
    """The definition of a file, as `parsed` gives it. Raises UsageError."""
    documents = document_files.documents(path)
    if len(documents) != 1:
        raise UsageError(f"{path} has {len(documents)} objects; a sweep is one, with its job in the field job")
    return parsed(path, documents[0], **changes)


def existing(name: str, namespace: str, **changes: Any) -> Definition:
    """The definition that the jobs of a sweep have, as `of_jobs` gives it. Raises NotFound, UsageError."""
    return of_jobs(name, jobs_of(name, namespace), **changes)


def of_jobs(name: str, jobs: list[Object], **changes: Any) -> Definition:
    """The definition that the jobs have, as `parsed` gives it; without a direction, with that of their programs."""
    return with_declared_goal(parsed(name, definition_of(jobs).source, **changes), jobs)


def with_declared_goal(definition: Definition, jobs: Sequence[Object]) -> Definition:
    """The definition with the direction that the programs of the jobs declare, unless the user has chosen it."""
    if definition.is_goal_given:
        return definition
    return replace(definition, goal=declared_goal(jobs, definition.metric))


def best(trials: Mapping[int, Trial], definition: Definition) -> Trial:
    """The best trial. Raises ClientError if none is complete, or if nobody says what is best."""
    name, metric = definition.name, definition.metric
    ends = sweep_trials.ends(trials)
    if ends is None:
        raise ClientError(f"no trial of sweep {name} is complete; `hvj sweep show {name}` shows why")
    if definition.goal is None:
        raise ClientError(
            f"no trial is the best, because no program declares whether a low or a high {metric} is: "
            f"{ends_text(ends)}; add --goal min or --goal max to `hvj sweep best {name}`"
        )
    return ends[definition.goal is Goal.MAX]


def ends_text(ends: tuple[Trial, Trial]) -> str:
    """The trials with the lowest and the highest value."""
    low, high = ends
    return f"the lowest is {low.value:.5g} of trial {low.number}, the highest {high.value:.5g} of trial {high.number}"


def goal_text(definition: Definition) -> str:
    """Whether the sweep minimizes its metric, and the reason if the user has not chosen."""
    metric = definition.metric
    if definition.goal is None:
        return f"searches by {metric}, minimized or maximized as its programs declare (--goal min or max to choose)"
    verb, other = ("maximizes", "min") if definition.goal is Goal.MAX else ("minimizes", "max")
    if definition.is_goal_given:
        return f"{verb} {metric}"
    reason = "a loss" if metric in LOSSES and definition.goal is Goal.MIN else "as its programs declare"
    return f"{verb} {metric} ({reason}; --goal {other} for the opposite)"


def first_line(definition: Definition) -> str:
    """What is searched: metric and direction, with who decided that, and the trials."""
    search = "each combination once" if definition.is_grid and definition.trials >= definition.size else "in all"
    at_once = f", {definition.parallel} at a time" if definition.parallel > 1 else ""
    number = f"{definition.trials} trial{'s' if definition.trials > 1 else ''}"
    trials = f"{number} of {', '.join(definition.parameters)}, {search}{at_once}"
    return f"sweep {definition.name} {goal_text(definition)}: {trials}"


def closest(metric: str, names: Sequence[str]) -> str | None:
    """The metric that was probably meant: `accuracy` for `acc`, `val_accuracy` for `val_acc`."""
    lower = {name.lower(): name for name in names}
    similar = difflib.get_close_matches(metric.lower(), lower, 1, 0.7)
    begins = [name for name in lower if name.startswith(metric.lower()) or metric.lower().startswith(name)]
    return next((lower[name] for name in (*similar, *begins)), None)


def is_trial(job: Object) -> bool:
    """Whether the job is a trial, and not a copy of one, which has the same labels and another name."""
    labels = job["metadata"]["labels"]
    return bool(job["metadata"]["name"] == f"{labels[LABEL_SWEEP]}-{labels.get(LABEL_TRIAL)}")


def selection(name: str, namespace: str) -> Object:
    """The jobs of a sweep, and copies of them, as arguments of a LIST or WATCH."""
    return {**kube.JOBS, "namespace": namespace, "label_selector": f"{LABEL_SWEEP}={name}"}
