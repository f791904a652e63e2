"""The definition of a sweep: what is searched, by which metric, and the job of a trial."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from horovodjob import document
from horovodjob.api.constants import API_VERSION, KIND
from horovodjob.batchai.names import JOB_NAME_LENGTH
from horovodjob.conversion import Notes
from horovodjob.document import Node
from horovodjob.sweeps import parameters, template
from horovodjob.sweeps.parameters import Choices, Parameter
from horovodjob.training_history import DIRECTIONS, Goal, declared_goal

Object = dict[str, Any]
KEYS = (
    *("name", "metric", "direction", "value", "trials", "parallel", "maxFailures", "sampler", "pruner"),
    *("parameters", "job"),
)
MOST_TRIALS = 10_000
DEFAULT_TRIALS = 20
DEFAULT_FAILURES = 3
# Half of what Kubernetes allows for all annotations of an object.
MOST_BYTES = 128 << 10
GRID = "grid"  # each combination once
SAMPLERS = {GRID: "BruteForceSampler", "tpe": "TPESampler", "random": "RandomSampler", "cmaes": "CmaEsSampler"}
# What is no part of the identity of a trial: it changes when and how often a job runs, and not what it trains.
UNTRAINED = ("runPolicy",)


class Measure(StrEnum):
    """Which epoch the value of a trial is from."""

    LAST = "last"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Component:
    """A sampler or a pruner of Optuna: the name of its class, and the options of its constructor."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Definition:
    """A sweep. `source` is the document that it was read from, as each of its jobs carries it."""

    source: Object
    name: str
    metric: str
    goal: Goal | None
    """Which value of the metric is the best; None until a program declares it."""
    is_goal_given: bool
    """Whether the user has chosen it."""
    measure: Measure
    trials: int
    parallel: int
    max_failures: int
    sampler: Component | None
    pruner: Component | None
    parameters: Mapping[str, Parameter]
    job: Object

    @property
    def size(self) -> float:
        """How many combinations of values there are."""
        return math.prod(parameter.size for parameter in self.parameters.values())

    @property
    def is_grid(self) -> bool:
        """Whether each combination is tried once."""
        return self.sampler is not None and self.sampler.name == SAMPLERS[GRID]

    @property
    def needs_goal(self) -> bool:
        """Whether the sweep depends on the direction: a grid or random values do only with a pruner or best epochs."""
        is_blind = self.sampler is not None and self.sampler.name in (SAMPLERS[GRID], SAMPLERS["random"])
        return not is_blind or self.pruner is not None or self.measure is Measure.BEST

    @property
    def setup(self) -> str:
        """A hash of what trials have in common that are compared: the search, and the job with its code and image."""
        parameters = {name: repr(parameter) for name, parameter in self.parameters.items()}
        text = json.dumps([parameters, _trained(self.job["spec"])], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def differences(self, other: "Definition") -> list[str]:
        """In what the setups of two sweeps differ."""
        own, others = _trained(self.job["spec"]), _trained(other.job["spec"])
        names = {**self.parameters, **other.parameters}
        found = [f"parameter {name}" for name in names if self.parameters.get(name) != other.parameters.get(name)]
        keys = [key for key in {**own, **others} if own.get(key) != others.get(key)]
        return list(dict.fromkeys((*found, *(_part(key, own) for key in keys))))


def _trained(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key not in UNTRAINED}


def _part(key: str, spec: Object) -> str:
    """The user's word for a field of spec: `hvj run` puts the code into `volumes` and `preparation`."""
    is_run = any(volume.get("name") == "code" for volume in spec.get("volumes") or () if isinstance(volume, Mapping))
    return "image" if key == "image" else "code" if is_run and key in ("volumes", "preparation") else f"spec.{key}"


def parse(source: Any) -> Definition:
    """The definition in a document. Raises ConversionError with all problems."""
    notes = Notes()
    node = document.root(source, notes, "a sweep with metric, parameters and job")
    for key, close in document.unknown_keys(source, KEYS):
        notes.refuse(
            key, f"is no field of a sweep: {f'write {close}' if close else 'the fields are ' + ', '.join(KEYS)}"
        )
    found = _parameters(node)
    trials, sampler = _trials_and_sampler(node, found)
    parallel = node.number("parallel", 1, MOST_TRIALS) or 1
    most = node.number("trials", 1, MOST_TRIALS)
    if most is not None and parallel > most and not notes.problems:
        notes.refuse("parallel", f"is {parallel}, and the sweep has {most} trials: use at most that many")
    metric = node.required_text("metric") or ""
    goal = _choice(node, "direction", DIRECTIONS)
    definition = Definition(
        source=dict(source),
        name=_name(node, trials),
        metric=metric,
        goal=goal or declared_goal((), metric),
        is_goal_given=goal is not None,
        measure=_choice(node, "value", {each.value: each for each in Measure}) or Measure.LAST,
        trials=trials,
        parallel=min(parallel, trials),
        max_failures=node.number("maxFailures", 1, MOST_TRIALS) or DEFAULT_FAILURES,
        sampler=sampler,
        pruner=_component(node, "pruner"),
        parameters=found,
        job=_job(node, found),
    )
    notes.raise_problems()
    try:
        size = len(source_text(definition).encode())
    except (TypeError, ValueError):
        size = 0
        notes.refuse("", "the file has a value that JSON does not have, such as a date: put it into quotes")
    if size > MOST_BYTES:
        notes.refuse("job", f"the sweep has {size >> 10} KiB, and each job carries it: use at most {MOST_BYTES >> 10}")
    notes.raise_problems()
    return definition


def _trials_and_sampler(node: Node, found: Mapping[str, Parameter]) -> tuple[int, Component | None]:
    """The number of trials, and the sampler: lists, and searches with few combinations, are a grid by default."""
    given, sampler = node.number("trials", 1, MOST_TRIALS), _component(node, "sampler")
    size = math.prod(parameter.size for parameter in found.values()) if found else math.inf
    are_lists = bool(found) and all(isinstance(each, Choices) for each in found.values())
    if sampler is None and (are_lists or size <= (given or DEFAULT_TRIALS)):
        sampler = Component(SAMPLERS[GRID], {})
    if sampler is None or sampler.name != SAMPLERS[GRID] or size == math.inf:
        return given or DEFAULT_TRIALS, sampler
    if given is None and size > MOST_TRIALS and not node.has("trials"):
        node.notes.refuse("trials", f"is missing: there are {int(size)} combinations, so name the number of trials")
    return min(given or MOST_TRIALS, int(size)), sampler


def source_text(definition: Definition) -> str:
    """The document as the annotation of a job."""
    return json.dumps(definition.source, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _name(node: Node, trials: int) -> str:
    name = node.required_text("name") or ""
    most = JOB_NAME_LENGTH - len(f"-{trials - 1}")
    if name and not re.fullmatch(rf"[a-z]([a-z0-9-]{{0,{most - 2}}}[a-z0-9])?", name):
        node.notes.refuse(
            "name",
            f"is {name!r}: it must be at most {most} lower-case letters, digits and -, and begin with a letter, "
            "because the jobs are NAME-0, NAME-1 and so on",
        )
    return name


def _choice(node: Node, key: str, choices: Mapping[str, Any]) -> Any:
    text = node.text(key)
    if text is not None and text not in choices:
        node.notes.refuse(key, f"is {text!r}: it must be {' or '.join(choices)}")
    return choices.get(text or "")


def _component(node: Node, key: str) -> Component | None:
    """`TPESampler`, or `TPESampler: {seed: 1}`."""
    value = node.value.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        value = {value: {}}
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, options),) = value.items()
        if isinstance(options, Mapping) and all(isinstance(option, str) for option in options):
            return Component(SAMPLERS.get(str(name).lower(), str(name)) if key == "sampler" else str(name), options)
    node.notes.refuse(key, f"must be the name of a {key} of Optuna, or the name with an object of its options")
    return None


def _parameters(node: Node) -> dict[str, Parameter]:
    found = {}
    child = node.child("parameters")
    if not node.has("parameters") or (child is not None and not child.value):
        node.notes.refuse("parameters", "is missing: name each parameter with its values, such as lr: log:1e-4:1e-1")
    for name, value in child.value.items() if child else ():
        where = f"parameters.{name}"
        if not parameters.NAME.fullmatch(str(name)) or name in template.OWN_NAMES:
            node.notes.refuse(where, "a name has letters, digits, _, - and ., and is neither trial nor job")
            continue
        try:
            found[str(name)] = parameters.parse(value)
        except ValueError as error:
            node.notes.refuse(where, str(error))
    return found


def _job(node: Node, found: Mapping[str, Parameter]) -> Object:
    notes = node.notes
    if not node.has("job"):
        notes.refuse("job", "is missing: add the HorovodJob of a trial, with ${NAME} for the value of a parameter")
    job = node.child("job")
    if job is None:
        return {}
    for field, value in (("apiVersion", API_VERSION), ("kind", KIND)):
        if job.value.get(field) != value:
            notes.refuse(job.at(field), f"must be {value}")
    spec = job.child("spec")
    if spec is None:
        if not job.has("spec"):
            notes.refuse("job.spec", "is missing: add it")
        return {}
    if metadata := job.child("metadata"):
        for field in ("labels", "annotations"):
            metadata.child(field)
    if (policy := spec.child("runPolicy")) and policy.has("ttlSecondsAfterFinished"):
        notes.refuse(
            "job.spec.runPolicy.ttlSecondsAfterFinished",
            "would delete the results with the jobs: remove it, and delete the experiment after the sweep",
        )
    _check_placeholders(spec, found)
    return dict(job.value)


def _check_placeholders(spec: Node, found: Mapping[str, Parameter]) -> None:
    given = spec.notes.problems and "parameters" in {each.path.split(".")[0] for each in spec.notes.problems}
    used = set()
    for path, name in template.placeholders(spec.value, "job.spec"):
        used.add(name)
        if name not in found and name not in template.OWN_NAMES and not given:
            names = ", ".join((*found, *template.OWN_NAMES))
            spec.notes.refuse(path, f"${{{name}}} is not a parameter ({names}): write $${{{name}}} for the text itself")
    for name in found:
        if name not in used:
            example = f"such as --{name}=${{{name}}} among its arguments"
            spec.notes.refuse(f"parameters.{name}", f"is not used: write ${{{name}}} in job.spec, {example}")
