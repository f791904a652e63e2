"""`hvj job logs`."""

from typing import Annotated

import typer

from horovodjob.api.constants import Role
from horovodjob.client.cluster import kube
from horovodjob.client.jobs import logs
from horovodjob.client.jobs.logs import Unfinished
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob_cli.commands import command, group
from horovodjob_cli.display.line_writer import LineWriter
from horovodjob_cli.options import Experiment, Namespace, Raw, Timeout, WaitStalled

app = group("Container logs of a job.")


@command(app, "logs")
def print_logs(
    name: Annotated[str, typer.Option("--name", "-n", "--job", "-j", help="Name of the job.", show_default=False)],
    namespace: Namespace = None,
    experiment: Experiment = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the logs until the job ends, across restarts.")
    ] = False,
    role: Annotated[Role | None, typer.Option(help="Only the launcher, or only workers.")] = None,
    worker: Annotated[int | None, typer.Option(min=0, help="Only the worker with this index.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Number of last lines of each pod to begin with.")] = None,
    prefix: Annotated[bool, typer.Option(help="Begin each line with the name of its pod.")] = True,
    raw: Raw = False,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
) -> None:
    """Print the container logs of launcher and workers."""
    job = kube.job(name, namespace, experiment)
    selection = logs.Selection(role, worker, tail)
    limit = WaitLimit(timeout, waits_for_stalled=wait_stalled)
    writer = LineWriter(raw=raw)
    for each in logs.lines(job, selection, limit, follow=follow):
        start = f"{each.source:<8} | " if prefix else ""
        if isinstance(each, Unfinished):
            writer.state(each.data, start)
        else:
            writer.line(each.data, start)
    writer.end()
