"""A sweep on the cluster: creates the jobs of trials, follows them by one watch, and ends those that are pruned.

The jobs are the only record: a run that begins again, or a second one elsewhere, continues from them.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from horovodjob.api.constants import ANNOTATION_PRUNED, LABEL_SWEEP, LABEL_TRIAL
from horovodjob.conversion import ConversionError
from horovodjob.sweeps import definition as definitions
from horovodjob.sweeps import trials as sweep_trials
from horovodjob.sweeps.definition import Definition
from horovodjob.sweeps.parameters import Value, text
from horovodjob.sweeps.trials import State, Trial
from horovodjob_cli.cluster import kube
from horovodjob_cli.cluster.watch import SYNCED, changes, retried
from horovodjob_cli.errors import CliError, NotFound, UsageError
from horovodjob_cli.jobs import batchai_records, document_files, manifests

Object = dict[str, Any]
NEEDED = "hvj sweep needs Optuna: install it with `pip install 'horovodjob[sweep]'`"


def jobs_of(name: str, namespace: str) -> list[Object]:
    """The jobs of a sweep, by trial. Raises NotFound."""
    selection = _selection(name, namespace)
    jobs = [job for job in kube.custom().list_namespaced_custom_object(**selection)["items"] if _is_trial(job)]
    if not jobs:
        raise NotFound(f"sweep {name} has no job in workspace {namespace}; see `hvj experiment list`")
    return sorted(jobs, key=lambda job: (job["metadata"]["creationTimestamp"], len(job["metadata"]["name"])))


def definition_of(jobs: list[Object]) -> Definition:
    """The definition that the newest job has. Raises UsageError."""
    try:
        return sweep_trials.definition_of(jobs[-1])
    except ValueError as error:
        raise UsageError(str(error)) from None


def trials_of(jobs: list[Object], definition: Definition) -> dict[int, Trial]:
    """The trials of the jobs, by number. Raises UsageError."""
    try:
        found = [sweep_trials.trial(job, definition) for job in jobs]
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {trial.number: trial for trial in sorted(found, key=lambda trial: trial.number)}


def parameters_text(values: Mapping[str, Value]) -> str:
    """The values on one line, numbers with four digits."""
    return " ".join(
        f"{name}={f'{value:.4g}' if isinstance(value, float) else text(value)}" for name, value in values.items()
    )


def trial_text(trial: Trial, metric: str) -> str:
    """The end of a trial on one line."""
    match trial.state:
        case State.COMPLETE:
            return f"{metric} {trial.value:.5g}"
        case State.PRUNED:
            return trial.message + (f", {metric} {trial.points[-1][1]:.5g}" if trial.points else "")
        case State.FAILED:
            return f"failed: {trial.message}"
    return "running"


def parsed(where: Path | str, source: Mapping[str, Any], **changes: Any) -> Definition:
    """The definition of a document, with the changes that are not None. Raises UsageError with all problems."""
    try:
        return definitions.parse({**source, **{key: value for key, value in changes.items() if value is not None}})
    except ConversionError as error:
        raise manifests.refused(Path(where), error.problems) from None


def of_file(path: Path, **changes: Any) -> Definition:
    """The definition of a file, as `parsed` gives it. Raises UsageError."""
    documents = document_files.documents(path)
    if len(documents) != 1:
        raise UsageError(f"{path} has {len(documents)} objects; a sweep is one, with its job in the field job")
    return parsed(path, documents[0], **changes)


def existing(name: str, namespace: str, **changes: Any) -> Definition:
    """The definition that the jobs of a sweep have, as `parsed` gives it. Raises NotFound, UsageError."""
    return parsed(name, definition_of(jobs_of(name, namespace)).source, **changes)


def complete(trial: Trial | None, name: str) -> Trial:
    """The trial. Raises CliError if it is none."""
    if trial is None:
        raise CliError(f"no trial of sweep {name} is complete; `hvj sweep show {name}` shows why")
    return trial


class Sweep:
    """A sweep that runs in a namespace. `show` gets a line for each trial that begins or ends."""

    def __init__(self, definition: Definition, namespace: str, show: Callable[[str], None]) -> None:
        try:
            from horovodjob.sweeps import study
        except ModuleNotFoundError as error:
            if error.name != "optuna":
                raise
            raise CliError(NEEDED) from None
        self._new_study = study.Study
        self._definition, self._namespace, self._show = definition, namespace, show
        self._most_trials = study.most_trials(definition)
        self._jobs: dict[int, Object] = {}
        self._trials: dict[int, Trial] = {}
        self._failures = 0
        self._study = self._built()

    @property
    def best(self) -> Trial | None:
        """The best trial so far."""
        return sweep_trials.best(self._trials, self._definition.goal)

    def first_job(self) -> Object:
        """The job that a new sweep would create first. Raises UsageError."""
        return self._job(0, self._ask(0))

    def run(self) -> None:
        """Return when all trials have ended. Raises CliError after too many failures in a row."""
        is_synced = False
        for change, job in changes(
            kube.custom().list_namespaced_custom_object, _selection(self._definition.name, self._namespace)
        ):
            if change == SYNCED:
                if not is_synced:
                    self._begin()
                is_synced = True
            elif not _is_trial(job):
                continue
            elif not is_synced:
                self._jobs[self._trial(job).number] = job
            else:
                self._observe(job, is_deleted=change == "DELETED")
            if is_synced and self._step():
                return

    def _begin(self) -> None:
        if self._jobs:
            self._check_search()
        self._trials = {number: self._trial(job) for number, job in self._jobs.items()}
        self._study = self._built()
        if self._jobs:
            states = [trial.state for trial in self._trials.values()]
            running = states.count(State.RUNNING)
            self._show(f"sweep {self._definition.name} continues after {len(states)} trials, of which {running} run")
        for number in sorted(self._jobs):
            self._observe(self._jobs[number])

    def _check_search(self) -> None:
        """Raises UsageError if the existing trials searched something else."""
        other, own = definition_of([self._jobs[max(self._jobs)]]).search, self._definition.search
        if differing := [key for key in {**other, **own} if other.get(key) != own.get(key)]:
            name = self._definition.name
            raise UsageError(
                f"sweep {name} exists in workspace {self._namespace} with another {', '.join(differing)}: choose "
                f"another name, or delete its jobs with `hvj experiment delete -n {name} -w {self._namespace}`"
            )

    def _step(self) -> bool:
        """Create the jobs that can run now. Returns whether the sweep has ended."""
        while True:
            following = max(self._trials, default=-1) + 1
            unfinished = sum(not batchai_records.is_finished(job) for job in self._jobs.values())
            if following >= self._most_trials:
                return not unfinished
            if unfinished >= self._definition.parallel:
                return False
            self._create(following)

    def _create(self, number: int) -> None:
        """Create a trial's job, or adopt the one that another program has created."""
        from kubernetes.client import ApiException

        values = self._ask(number)
        body = self._job(number, values)
        try:
            job = retried(lambda: kube.create_job(body))
        except ApiException as error:
            if error.status != 409:
                raise
            existing = retried(lambda: kube.find_job(body["metadata"]["name"], self._namespace))
            if existing is None:  # deleted since: the next round creates it
                self._study = self._built()
                return
            job = existing
        if (job["metadata"].get("labels") or {}).get(LABEL_SWEEP) != self._definition.name:
            name = job["metadata"]["name"]
            raise CliError(f"job {name} exists and is no trial of this sweep: delete it, or choose another name")
        self._jobs[number], self._trials[number] = job, self._trial(job)
        if dict(self._trials[number].parameters) != values:
            self._study = self._built()
        self._show(f"trial {number}: job {job['metadata']['name']} {parameters_text(self._trials[number].parameters)}")

    def _observe(self, job: Object, *, is_deleted: bool = False) -> None:
        trial = self._trial(job)
        number = trial.number
        before = self._trials.get(number)
        if is_deleted:
            self._jobs.pop(number, None)
            if trial.state is not State.RUNNING:
                return
            trial = sweep_trials.deleted(trial)
        else:
            self._jobs[number] = job
        self._trials[number] = trial
        if self._study.observe(trial) and self._prune(job, trial):
            trial = self._trials[number]
            self._study.observe(trial)
        if trial.state is not State.RUNNING and (before is None or before.state is State.RUNNING):
            self._show_end(trial)

    def _prune(self, job: Object, trial: Trial) -> bool:
        """Request the job's termination. Returns whether that was in time."""
        from kubernetes.client import ApiException

        annotations = {ANNOTATION_PRUNED: str(trial.points[-1][0])}
        try:
            job = retried(lambda: kube.patch_job(job, {"runPolicy": {"terminate": True}}, annotations))
        except ApiException:
            found = retried(lambda: kube.find_job(trial.job, self._namespace))
            if found is not None and not batchai_records.is_finished(found):
                raise
            return False  # it has ended or was deleted since, which the watch reports
        self._jobs[trial.number], self._trials[trial.number] = job, self._trial(job)
        return True

    def _show_end(self, trial: Trial) -> None:
        best = self.best
        note = " (the best so far)" if best is not None and best.number == trial.number else ""
        self._show(f"trial {trial.number}: {trial_text(trial, self._definition.metric)}{note}")
        if trial.is_terminated:
            return
        self._failures = self._failures + 1 if trial.state is State.FAILED else 0
        if self._failures >= self._definition.max_failures:
            raise CliError(
                f"{self._failures} trials in a row failed, the last is job {trial.job}: {trial.message}; no more are "
                "created: correct the job and run the sweep again, which continues it"
            )

    def _built(self) -> Any:
        try:
            return self._new_study(self._definition, self._trials.values())
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _ask(self, number: int) -> dict[str, Value]:
        try:
            return dict(self._study.ask(number))
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _job(self, number: int, values: Mapping[str, Value]) -> Object:
        return sweep_trials.trial_job(self._definition, number, values, self._namespace)

    def _trial(self, job: Object) -> Trial:
        try:
            return sweep_trials.trial(job, self._definition)
        except ValueError as error:
            raise UsageError(str(error)) from None


def to_standard_error(line: str) -> None:
    """Print a line with the time of day."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def _is_trial(job: Object) -> bool:
    """Whether the job is not a copy of a trial, which has its labels and another name."""
    labels = job["metadata"]["labels"]
    return bool(job["metadata"]["name"] == f"{labels[LABEL_SWEEP]}-{labels.get(LABEL_TRIAL)}")


def _selection(name: str, namespace: str) -> Object:
    return {**kube.JOBS, "namespace": namespace, "label_selector": f"{LABEL_SWEEP}={name}"}
