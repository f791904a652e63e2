"""`hvj sweep`: jobs of one experiment with the parameters that Optuna chooses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.client.cluster import kube
from horovodjob.client.jobs import job_creation, sweep_records
from horovodjob.client.jobs import sweep as sweeps
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob.client.runs.options import SweepOptions, definition_fields
from horovodjob.sweeps import trials as sweep_trials
from horovodjob.sweeps.definition import Definition
from horovodjob.sweeps.trials import State
from horovodjob_cli.commands import CommandResult, command, group
from horovodjob_cli.options import Namespace, Quiet, Timeout, WaitStalled
from horovodjob_cli.run_options import with_sweep_options

# The second alternative reads a manifest, which a dry run prints.
TABLE = {
    "Trial": "trial",
    "Job": "job || metadata.name",
    "State": "state",
    "Value": "value",
    "Epoch": "epoch",
    "Parameters": "parameters",
}
app = group("Sweeps: jobs with the parameters that Optuna chooses.", default="run")
SweepName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the sweep.", show_default=False)]


@command(app, "run", table=TABLE)
@with_sweep_options()
def run(
    config_file: Annotated[
        Path,
        typer.Option(
            *("--config-file", "-f"),
            metavar="FILE",
            help="File with the sweep; - is standard input.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="Name of the sweep, instead of the file's.")
    ] = None,
    namespace: Namespace = None,
    *,
    settings: SweepOptions,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
    quiet: Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the job of the first trial only.")] = False,
) -> Any:
    """Run a sweep until all its trials have ended, and print the best one; `run` can be left out.

    A sweep that was interrupted continues. Its options replace what the file has.
    """
    definition = sweep_records.of_file(config_file, name=name, **definition_fields(settings))
    namespace = kube.namespace(namespace or (definition.job.get("metadata") or {}).get("namespace"))
    show = _ignore if quiet else sweeps.to_standard_error
    sweep = sweeps.Sweep(definition, namespace, show, is_new=settings.get("new", False))
    if dry_run:
        return sweep.first_job()
    job_creation.check_needs(sweep.first_job())
    return followed(sweep, WaitLimit(timeout, waits_for_stalled=wait_stalled))


@command(app, "resume", table=TABLE)
@with_sweep_options("metric", "goal", "trials", "parallel")
def resume(
    name: SweepName,
    settings: SweepOptions,
    namespace: Namespace = None,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
    quiet: Quiet = False,
) -> Any:
    """Continue a sweep as its jobs record it; needs no file. Another metric is read from the epochs of its jobs."""
    namespace = kube.namespace(namespace)
    definition = sweep_records.existing(name, namespace, **definition_fields(settings))
    sweep = sweeps.Sweep(definition, namespace, _ignore if quiet else sweeps.to_standard_error)
    return followed(sweep, WaitLimit(timeout, waits_for_stalled=wait_stalled))


@command(app, "show", table=TABLE)
@with_sweep_options("metric", "goal")
def show(name: SweepName, settings: SweepOptions, namespace: Namespace = None) -> Any:
    """Show the trials of a sweep."""
    jobs = sweep_records.jobs_of(name, kube.namespace(namespace))
    definition = sweep_records.of_jobs(name, jobs, **definition_fields(settings))
    trials = sweep_records.trials_of(jobs, definition)
    setups = dict.fromkeys(trial.setup for trial in trials.values())
    for setup in setups:
        own = {number: trial for number, trial in trials.items() if trial.setup == setup}
        note = f", setup {setup}," if len(setups) > 1 else ""
        most = f" of {definition.trials} trials" if setup == definition.setup else ""
        message(f"sweep {name}{note} {_summary(own, definition, most)}")
    records = [sweep_trials.record(trial, definition.metric) for trial in trials.values()]
    return CommandResult(records, table={**TABLE, "Setup": "setup"} if len(setups) > 1 else TABLE)


def _summary(trials: Mapping[int, sweep_trials.Trial], definition: Definition, most: str) -> str:
    states = [trial.state for trial in trials.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
    end = ""
    if ends := sweep_trials.ends(trials):
        best = sweep_trials.best(trials, definition.goal)
        end = (
            f"; the best is trial {best.number} with {best.value:.5g}" if best else f"; {sweep_records.ends_text(ends)}"
        )
    return f"{sweep_records.goal_text(definition)}: {counts}{most}{end}"


@command(app, "best", table=TABLE)
@with_sweep_options("metric", "goal")
def best(name: SweepName, settings: SweepOptions, namespace: Namespace = None) -> Any:
    """Show the best trial of a sweep, of those with the newest code, image and settings."""
    jobs = sweep_records.jobs_of(name, kube.namespace(namespace))
    definition = sweep_records.of_jobs(name, jobs, **definition_fields(settings))
    trials = sweep_records.trials_of(jobs, definition)
    own = sweep_records.compared(trials, definition)
    if others := len(trials) - len(own):
        message(f"{others} trials have another setup and are not compared: see `hvj sweep show {name}`")
    return sweep_trials.record(sweep_records.best(own, definition), definition.metric)


def followed(sweep: sweeps.Sweep, limit: WaitLimit) -> Any:
    """The record of the best trial, after the end of all. Raises ClientError if there is none, Stalled, TimedOut."""
    try:
        sweep.run(limit)
    except KeyboardInterrupt:
        name = sweep.definition.name
        message(
            f"\nthe jobs of sweep {name} still run; `hvj sweep resume {name}` continues it, "
            f"`hvj experiment delete -n {name}` deletes it",
            end="",
        )
        raise
    return sweep_trials.record(sweep.complete(), sweep.definition.metric)


def _ignore(line: str) -> None:
    """Shows nothing."""
