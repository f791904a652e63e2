"""`hvj job tensorboard`."""

from typing import Annotated

import typer

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.cluster import kube
from horovodjob.client.errors import UsageError
from horovodjob.client.files import tensorboard
from horovodjob.client.files.job_files import STDOUTERR
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob_cli.account_options import with_account
from horovodjob_cli.commands import command, group
from horovodjob_cli.display.transfer_bars import TerminalDisplay
from horovodjob_cli.options import Experiment, Namespace, Quiet, parsed_duration

app = group("TensorBoard for a job.")
DIRECTORY = "tensorboard"  # where the trainer writes event files, beside the log files


@command(app, "tensorboard")
@with_account
def show(
    account: Options,
    name: Annotated[str, typer.Option("--name", "-n", "--job", "-j", help="Name of the job.", show_default=False)],
    directory_id: Annotated[
        str | None,
        typer.Option(
            *("--output-directory-id", "-d"),
            help="stdouterr, or the id of an entry of spec.outputs. Default: the first of them with event files.",
        ),
    ] = None,
    path: Annotated[str | None, typer.Option("--path", "-p", help="Path below the directory.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; 0 for any free one.")] = 6006,
    namespace: Namespace = None,
    experiment: Experiment = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            parser=parsed_duration,
            help="Exit with 5 if TensorBoard has not started within this time. Default: no limit, and 5m for a pod "
            "that reads a volume.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show the event files of a job in TensorBoard, until Ctrl-C.

    TensorBoard runs in a pod of the job, and a port of this machine leads to it. After the end of the job, the event
    files are downloaded, and TensorBoard runs on this machine.
    """
    if path is not None and directory_id is None:
        raise UsageError("--path is below a directory; name it with --output-directory-id")
    job, limit, display = kube.job(name, namespace, experiment), WaitLimit(timeout), TerminalDisplay(quiet=quiet)
    if pod := tensorboard.rank_0_pod(job):
        tensorboard.serve_in_pod(job, pod, directory_id, path or "", port, limit)
    elif directory_id is None:
        tensorboard.serve_here(job, STDOUTERR, DIRECTORY, account, port, limit, display)
    else:
        tensorboard.serve_here(job, directory_id, path or "", account, port, limit, display)
