"""A sweep on the cluster: creates the jobs of trials, follows them by one watch, and ends those that are pruned.

The jobs are the only record: a run that begins again, or a second one elsewhere, continues from them.
"""

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from horovodjob import training_history
from horovodjob.api.constants import ANNOTATION_PRUNED, LABEL_SWEEP, LABEL_TRIAL, Phase
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.ticks import with_ticks
from horovodjob.client.cluster.watch import SYNCED, changes, retried
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.jobs import batchai_records, sweep_records
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob.sweeps import trials as sweep_trials
from horovodjob.sweeps.definition import Definition
from horovodjob.sweeps.parameters import Value
from horovodjob.sweeps.trials import State, Trial

Object = dict[str, Any]
NEEDED = "hvj sweep needs Optuna: install it with `pip install 'horovodjob[sweep]'`"


def require_optuna() -> None:
    """Raises ClientError if Optuna, which an extra of the package installs, is missing."""
    if find_spec("optuna") is None:
        raise ClientError(NEEDED)


class Sweep:
    """A sweep that runs in a namespace. `show` gets a first line, and one for each trial that begins or ends.

    With `is_new`, it may begin beside trials of other code, images, settings or parameters, which it never compares.
    """

    def __init__(
        self, definition: Definition, namespace: str, show: Callable[[str], None], *, is_new: bool = False
    ) -> None:
        require_optuna()
        from horovodjob.sweeps import study

        self._new_study = study.Study
        self.definition, self._namespace, self._show = definition, namespace, show
        self._is_new = is_new
        self._others: dict[str, Object] = {}
        self._is_metric_known = self._has_named_metrics = False
        self._jobs: dict[int, Object] = {}
        self._trials: dict[int, Trial] = {}
        self._failures = 0
        self._study = self._built()

    @property
    def best(self) -> Trial | None:
        """The best trial so far."""
        return sweep_trials.best(self._trials, self.definition.goal)

    def complete(self) -> Trial:
        """The best trial. Raises ClientError if none is complete, or if nobody says what is best."""
        return sweep_records.best(self._trials, self.definition)

    def first_job(self) -> Object:
        """The job that a new sweep would create first. Raises UsageError."""
        return self._job(0, self._ask(0))

    def run(self, limit: WaitLimit) -> None:
        """Return when all trials have ended. Raises ClientError after too many failures in a row, Stalled, TimedOut."""
        is_synced = False
        selection = sweep_records.selection(self.definition.name, self._namespace)
        for news in with_ticks(lambda: changes(kube.custom().list_namespaced_custom_object, selection)):
            limit.check(*self._jobs.values())
            if news is None:
                continue
            change, job = news
            if change == SYNCED:
                if not is_synced:
                    self._begin()
                is_synced = True
            elif not sweep_records.is_trial(job):
                continue
            elif not self._is_own(job):
                self._others[job["metadata"]["name"]] = job
            elif not is_synced:
                self._jobs[self._trial(job).number] = job
            else:
                self._observe(job, is_deleted=change == "DELETED")
            if is_synced and self._step():
                return

    def _begin(self) -> None:
        if self._others and not self._jobs and not self._is_new:
            self._refuse_others()
        self._use(sweep_records.with_declared_goal(self.definition, [*self._jobs.values()]))
        metric = self.definition.metric
        self._is_metric_known = any(metric in training_history.reported_metrics(job) for job in self._jobs.values())
        self._show(sweep_records.first_line(self.definition))
        if self._others:
            self._show(f"{len(self._others)} trials of sweep {self.definition.name} have another setup: not compared")
        if self._jobs:
            states = [trial.state for trial in self._trials.values()]
            running = states.count(State.RUNNING)
            self._has_named_metrics = True  # the user has seen them, and continues
            self._show(f"sweep {self.definition.name} continues after {len(states)} trials, of which {running} run")
        for number in sorted(self._jobs):
            self._observe(self._jobs[number])

    def _use(self, definition: Definition) -> None:
        """Read the trials of all jobs again, as this definition says."""
        self.definition = definition
        self._trials |= {number: self._trial(job) for number, job in self._jobs.items()}
        self._study = self._built()

    def _refuse_others(self) -> None:
        """Raises UsageError with what differs from the newest trial."""
        newest = max(self._others.values(), key=lambda job: self._trial(job).number)
        differing = ", ".join(self.definition.differences(sweep_records.definition_of([newest])))
        name = self.definition.name
        raise UsageError(
            f"sweep {name} exists in namespace {self._namespace} with another {differing}: add `new=` to try all "
            "again, apart from its trials, or choose another name"
        )

    def _is_own(self, job: Object) -> bool:
        try:
            return sweep_trials.setup_of(job) == self.definition.setup
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _step(self) -> bool:
        """Create the jobs that can run now. Returns whether the sweep has ended."""
        while True:
            unfinished = sum(not batchai_records.is_finished(job) for job in self._jobs.values())
            if len(self._trials) >= self.definition.trials:
                return not unfinished
            if unfinished >= self.definition.parallel:
                return False
            others = [int(job["metadata"]["labels"][LABEL_TRIAL]) for job in self._others.values()]
            self._create(max((*self._trials, *others), default=-1) + 1)

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
        if (job["metadata"].get("labels") or {}).get(LABEL_SWEEP) != self.definition.name:
            name = job["metadata"]["name"]
            raise ClientError(f"job {name} exists and is no trial of this sweep: delete it, or choose another name")
        if not self._is_own(job):  # of a program with other code, which the watch may not have shown yet
            self._others[job["metadata"]["name"]] = job
            self._study = self._built()
            return
        self._jobs[number], self._trials[number] = job, self._trial(job)
        if dict(self._trials[number].parameters) != values:
            self._study = self._built()
        values_text = sweep_records.parameters_text(self._trials[number].parameters)
        self._show(f"trial {number}: job {job['metadata']['name']} {values_text}")

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
        self._check_metric(job, trial)
        self._check_goal(job, trial)
        trial = self._trials[number]
        if self._study.observe(trial) and self._prune(job, trial):
            trial = self._trials[number]
            self._study.observe(trial)
        if trial.state is not State.RUNNING and (before is None or before.state is State.RUNNING):
            self._show_end(trial)

    def _check_metric(self, job: Object, trial: Trial) -> None:
        """Show at the first report that the metric is not among those that the program reports. Raises ClientError."""
        metric, reported = self.definition.metric, training_history.reported_metrics(job)
        self._is_metric_known = self._is_metric_known or metric in reported
        is_succeeded = trial.state is State.FAILED and (job.get("status") or {}).get("phase") == Phase.SUCCEEDED
        if self._is_metric_known or not (training_history.metric_names([job]) or is_succeeded):
            return
        close = sweep_records.closest(metric, reported)
        name, known = self.definition.name, ", ".join(reported) or "no metric at all"
        sentence = f"trial {trial.number} reports no {metric}, but {known}"
        correction = f"`hvj sweep resume {name} -w {self._namespace} --metric {close or 'NAME'}` continues with another"
        # Only some epochs have a validation.
        may_come = metric.startswith("val_") and not any(each.startswith("val_") for each in reported)
        if is_succeeded or (close and not may_come and not self._has_named_metrics):
            raise ClientError(f"{sentence}; {correction}, and its jobs are kept")
        if not self._has_named_metrics:
            self._has_named_metrics = True
            self._show(f"{sentence}, so far; {correction}")

    def _check_goal(self, job: Object, trial: Trial) -> None:
        """Use the direction that a program declares. Raises ClientError if the search has none or the other one."""
        definition = self.definition
        name, metric, goal = definition.name, definition.metric, definition.goal
        declared = training_history.declared_goal([job], metric)
        if definition.is_goal_given or declared is goal is not None:
            return
        resume = f"`hvj sweep resume {name} -w {self._namespace} --goal"
        if declared is not None and goal is None:
            self._use(sweep_records.with_declared_goal(definition, [job]))
            self._show(f"sweep {name} {sweep_records.goal_text(self.definition)}")
        elif declared is not None:
            so_far = sweep_records.goal_text(definition)
            raise ClientError(
                f"trial {trial.number} declares {declared} for {metric}, and the sweep {so_far}: {resume} {declared}` "
                f"or `--goal {goal}` continues, and its jobs are kept"
            )
        elif goal is None and definition.needs_goal and metric in training_history.reported_metrics(job):
            raise ClientError(
                f"the program of trial {trial.number} does not declare whether a low or a high {metric} is best, which "
                f"the search needs: {resume} min` or `--goal max` continues, and its jobs are kept"
            )

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
        self._show(f"trial {trial.number}: {sweep_records.trial_text(trial, self.definition.metric)}{note}")
        if trial.is_terminated:
            return
        self._failures = self._failures + 1 if trial.state is State.FAILED else 0
        if self._failures >= self.definition.max_failures:
            raise ClientError(
                f"{self._failures} trials in a row failed, the last is job {trial.job}: {trial.message}; no more are "
                "created: correct the job and run the sweep again, which continues it"
            )

    def _built(self) -> Any:
        try:
            return self._new_study(self.definition, self._trials.values())
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _ask(self, number: int) -> dict[str, Value]:
        try:
            return dict(self._study.ask(number))
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _job(self, number: int, values: Mapping[str, Value]) -> Object:
        return sweep_trials.trial_job(self.definition, number, values, self._namespace)

    def _trial(self, job: Object) -> Trial:
        try:
            return sweep_trials.trial(job, self.definition)
        except ValueError as error:
            raise UsageError(str(error)) from None


def to_standard_error(line: str) -> None:
    """Print a line with the time of day."""
    message(f"{time.strftime('%H:%M:%S')} {line}")
