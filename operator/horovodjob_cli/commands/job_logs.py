"""`hvj job logs`."""

import sys
from typing import Annotated

import typer

from horovodjob.api.constants import Role
from horovodjob_cli.cluster import kube
from horovodjob_cli.commands import command, group
from horovodjob_cli.errors import CliError
from horovodjob_cli.jobs import batchai_records, logs
from horovodjob_cli.options import Experiment, Workspace

app = group("Container logs of a job.")


@command(app, "logs")
def print_logs(
    name: Annotated[str, typer.Option("--name", "-n", "--job", "-j", help="Name of the job.", show_default=False)],
    workspace: Workspace = None,
    experiment: Experiment = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the logs until the job ends, across restarts.")
    ] = False,
    role: Annotated[Role | None, typer.Option(help="Only the launcher, or only workers.")] = None,
    worker: Annotated[int | None, typer.Option(min=0, help="Only the worker with this index.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Number of last lines of each pod to begin with.")] = None,
    prefix: Annotated[bool, typer.Option(help="Begin each line with the name of its pod.")] = True,
) -> None:
    """Print the container logs of launcher and workers."""
    job = kube.job(name, workspace, experiment)
    selection = logs.Selection(role, worker, tail)
    if follow and not batchai_records.is_finished(job):
        lines = logs.followed_lines(job, selection)
    elif any(map(selection.has, kube.pods(job))):
        lines = logs.current_lines(job, selection)
    else:
        raise CliError(
            f"job {name} has no such pod ({batchai_records.execution_state(job.get('status', {}))}); {FILES}"
        )
    for source, text in lines:
        sys.stdout.buffer.write((f"{source:<8} | ".encode() if prefix else b"") + text + b"\n")
        sys.stdout.buffer.flush()


FILES = "what it wrote to its share is listed by `hvj job file list`"
