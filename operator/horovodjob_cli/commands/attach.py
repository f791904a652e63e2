"""`hvj attach`."""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from horovodjob.client.cluster import kube
from horovodjob.client.errors import NotFound
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob_cli.commands import command, group
from horovodjob_cli.display.job_output import show_output
from horovodjob_cli.options import Experiment, Namespace, Quiet, Raw, Timeout, WaitStalled

app = group("The output of a job.")


@command(app, "attach")
def attach(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.", show_default=False)],
    namespace: Namespace = None,
    experiment: Experiment = None,
    quiet: Quiet = False,
    raw: Raw = False,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
) -> None:
    """Show the output of a job from its first line until its end, and exit with its exit code.

    Ctrl-C leaves the job alone.
    """
    found = kube.job(job, namespace, experiment)
    limit = WaitLimit(timeout, waits_for_stalled=wait_stalled)
    with advice_on_interrupt(found):
        ended = show_output(found, limit, quiet=quiet, raw=raw)
    raise typer.Exit(batchai_records.exit_code(ended))


@contextlib.contextmanager
def advice_on_interrupt(job: kube.Object) -> Iterator[None]:
    """If an error or Ctrl-C ends the block, prints the commands that attach to the job, terminate and delete it."""
    try:
        yield
    except (NotFound, BrokenPipeError):  # the job was deleted, or nobody reads
        raise
    except Exception:
        message(advice(job), end="")
        raise
    except KeyboardInterrupt:
        message(f"\n{advice(job)}", end="")
        raise


def advice(job: kube.Object) -> str:
    """The commands for a job that continues."""
    name, namespace = batchai_records.display_name(job), job["metadata"]["namespace"]
    return (
        f"job {name} continues in namespace {namespace}\n"
        f"  hvj attach {name} -w {namespace}            shows its output\n"
        f"  hvj job terminate -n {name} -w {namespace}  ends it and keeps its record\n"
        f"  hvj job delete -n {name} -w {namespace}     ends and deletes it\n"
    )
