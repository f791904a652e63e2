"""`hvj sweep`: jobs of one experiment with the parameters that Optuna chooses."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.sweeps import trials as sweep_trials
from horovodjob.sweeps.definition import Definition
from horovodjob.sweeps.trials import State
from horovodjob.training_history import Goal
from horovodjob_cli.cluster import kube
from horovodjob_cli.commands import command, group
from horovodjob_cli.jobs import sweep as sweeps
from horovodjob_cli.options import Quiet, Workspace

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
Trials = Annotated[
    int | None, typer.Option(metavar="NUMBER", min=1, help="Number of trials, instead of the sweep's own.")
]
Parallel = Annotated[
    int | None, typer.Option(metavar="NUMBER", min=1, help="Trials that run at the same time, instead of its own.")
]


@command(app, "run", table=TABLE)
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
    workspace: Workspace = None,
    trials: Trials = None,
    parallel: Parallel = None,
    quiet: Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the job of the first trial only.")] = False,
) -> Any:
    """Run a sweep until all its trials have ended, and print the best one; `run` can be left out.

    A sweep that was interrupted continues.
    """
    definition = sweeps.of_file(config_file, name=name, trials=trials, parallel=parallel)
    namespace = workspace or (definition.job.get("metadata") or {}).get("namespace")
    sweep = sweeps.Sweep(definition, kube.namespace(namespace), _ignore if quiet else sweeps.to_standard_error)
    if dry_run:
        return sweep.first_job()
    return followed(sweep, definition)


@command(app, "resume", table=TABLE)
def resume(
    name: SweepName, workspace: Workspace = None, trials: Trials = None, parallel: Parallel = None, quiet: Quiet = False
) -> Any:
    """Continue a sweep as its jobs record it; needs no file."""
    namespace = kube.namespace(workspace)
    definition = sweeps.existing(name, namespace, trials=trials, parallel=parallel)
    return followed(sweeps.Sweep(definition, namespace, _ignore if quiet else sweeps.to_standard_error), definition)


@command(app, "show", table=TABLE)
def show(name: SweepName, workspace: Workspace = None) -> Any:
    """Show the trials of a sweep."""
    jobs = sweeps.jobs_of(name, kube.namespace(workspace))
    definition = sweeps.definition_of(jobs)
    trials = sweeps.trials_of(jobs, definition)
    states = [trial.state for trial in trials.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
    goal = "maximizes" if definition.goal is Goal.MAX else "minimizes"
    best = sweep_trials.best(trials, definition.goal)
    end = f"; the best is trial {best.number} with {best.value:.5g}" if best else ""
    sys.stderr.write(f"sweep {name} {goal} {definition.metric}: {counts} of {definition.trials} trials{end}\n")
    return [sweep_trials.record(trial, definition.metric) for trial in trials.values()]


@command(app, "best", table=TABLE)
def best(name: SweepName, workspace: Workspace = None) -> Any:
    """Show the best trial of a sweep."""
    jobs = sweeps.jobs_of(name, kube.namespace(workspace))
    definition = sweeps.definition_of(jobs)
    trials = sweeps.trials_of(jobs, definition)
    return _best_record(sweep_trials.best(trials, definition.goal), definition)


def followed(sweep: sweeps.Sweep, definition: Definition) -> Any:
    """The record of the best trial, after the end of all. Raises CliError if none is complete."""
    try:
        sweep.run()
    except KeyboardInterrupt:
        name = definition.name
        sys.stderr.write(
            f"\nthe jobs of sweep {name} still run; `hvj sweep resume {name}` continues it, "
            f"`hvj experiment delete -n {name}` deletes it"
        )
        raise
    return _best_record(sweep.best, definition)


def _best_record(trial: sweep_trials.Trial | None, definition: Definition) -> Any:
    return sweep_trials.record(sweeps.complete(trial, definition.name), definition.metric)


def _ignore(line: str) -> None:
    """Shows nothing."""
