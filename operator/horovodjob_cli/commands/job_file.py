"""`hvj job file`: the files of a job, also after its pods are deleted."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.errors import DirectoryNotFound
from horovodjob.client.cluster import kube
from horovodjob.client.files.file_transfers import download_to, file_record
from horovodjob.client.files.job_files import STDOUTERR, JobEnd, job_with_output, open_directory
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob.escaping import escaped_stream
from horovodjob_cli.account_options import with_account
from horovodjob_cli.commands import command, group
from horovodjob_cli.display.transfer_bars import TerminalDisplay
from horovodjob_cli.options import (
    Experiment,
    JobName,
    Quiet,
    Raw,
    Timeout,
    WaitStalled,
    Workspace,
    parsed_duration,
)
from horovodjob_cli.tables import FILE_TABLE, TRANSFER_TABLE

app = group("Files of a job on its share, also after its pods are deleted.")
DirectoryId = Annotated[
    str,
    typer.Option(
        "--output-directory-id",
        "-d",
        help="stdouterr for the log files, or the id of an entry of spec.outputs.",
    ),
]
RelativePath = Annotated[str, typer.Option("--path", "-p", help="Path below the directory.")]
PodTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=parsed_duration,
        help="Exit with 5 if the pod that reads a volume has not started within this time. Default: 5m.",
        show_default=False,
    ),
]
FileName = Annotated[str, typer.Option("--file-name", "-f", help="Name of the file.", show_default=False)]


@command(app, "list", table=FILE_TABLE)
@with_account
def list_(
    account: Options,
    job: JobName,
    directory_id: DirectoryId = STDOUTERR,
    path: RelativePath = ".",
    expiry: Annotated[int, typer.Option("--expiry", min=1, help="Minutes until the links in the JSON expire.")] = 60,
    workspace: Workspace = None,
    experiment: Experiment = None,
    timeout: PodTimeout = None,
) -> Any:
    """List the files of an output directory."""
    found = kube.job(job, workspace, experiment)
    with open_directory(found, directory_id, path, account, WaitLimit(timeout)) as place:
        try:
            entries = place.store.entries(place.path)
        except DirectoryNotFound:
            if batchai_records.is_finished(found) or path != ".":
                raise
            message(f"job {job} has not written files yet")
            return []
        expires_at = datetime.fromtimestamp(time.time() + expiry * 60, UTC)
        links = [
            None if entry.is_directory else place.store.download_url(f"{place.path}/{entry.name}", expires_at)
            for entry in entries
        ]
        return [file_record(entry, link) for entry, link in zip(entries, links, strict=True)]


@command(app, "stream")
@with_account
def stream(
    account: Options,
    job: JobName,
    file_name: FileName,
    directory_id: DirectoryId = STDOUTERR,
    path: RelativePath = ".",
    workspace: Workspace = None,
    experiment: Experiment = None,
    raw: Raw = False,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
) -> None:
    """Print a file as it grows, until the job has ended and the whole file is printed.

    Exit with 4 if the job cannot continue until you act.
    """
    from horovodjob.azurefiles.tail import tail

    limit = WaitLimit(timeout, waits_for_stalled=wait_stalled)
    found = job_with_output(kube.job(job, workspace, experiment), limit)
    with open_directory(found, directory_id, path, account, limit) as place:
        end = JobEnd(found, limit)
        for text in tail(place.store, f"{place.path}/{file_name}", end.has_ended, sleep=end.wait):
            shown = escaped_stream(text) if sys.stdout.isatty() and not raw else text
            sys.stdout.buffer.write(shown.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()


@command(app, "download", table=TRANSFER_TABLE)
@with_account
def download(
    account: Options,
    job: JobName,
    file_name: Annotated[
        str | None, typer.Option("--file-name", "-f", help="File or directory. Default: the whole directory.")
    ] = None,
    directory_id: DirectoryId = STDOUTERR,
    path: RelativePath = ".",
    destination: Annotated[
        Path, typer.Option("--dest", help="Directory or path of the new file. Default: the current directory.")
    ] = Path(),
    workspace: Workspace = None,
    experiment: Experiment = None,
    quiet: Quiet = False,
    timeout: PodTimeout = None,
) -> Any:
    """Download a file of an output directory, or all of it."""
    found, display = kube.job(job, workspace, experiment), TerminalDisplay(quiet=quiet)
    with open_directory(found, directory_id, f"{path}/{file_name or ''}", account, WaitLimit(timeout)) as place:
        return download_to(destination, place.store, place.path, name=directory_id, display=display)
