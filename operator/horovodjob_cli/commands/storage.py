"""`hvj storage`: shares, directories and files on Azure Files, with the options of `az storage`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.files import joined
from horovodjob.azurefiles.location import share_path
from horovodjob_cli.commands import command, group
from horovodjob_cli.errors import UsageError
from horovodjob_cli.file_transfers import download_to, progress_bars
from horovodjob_cli.options import Name, Quiet
from horovodjob_cli.shares import (
    FILE_TABLE,
    TRANSFER_TABLE,
    ShareName,
    file_record,
    open_share,
    transfer_record,
    with_account,
)

app = group("Shares, directories and files on Azure Files.")
share = group("Shares.")
directory = group("Directories of a share.")
file = group("Files of a share.")
app.add_typer(share, name="share")
app.add_typer(directory, name="directory")
app.add_typer(file, name="file")


@command(share, "create")
@with_account
def create_share(
    account: Options,
    name: Name,
    quota: Annotated[int | None, typer.Option(min=1, max=102400, help="Maximum size of the share in GiB.")] = None,
) -> Any:
    """Create a share; `created` is false if it exists."""
    return {"created": open_share(name, account).create(quota)}


@command(directory, "create")
@with_account
def create_directory(
    account: Options,
    name: Name,
    share_name: ShareName,
) -> Any:
    """Create a directory and its parents; `created` is false if it exists."""
    return {"created": open_share(share_name, account).create_directory(share_path(name))}


@command(file, "upload", table=TRANSFER_TABLE)
@with_account
def upload(
    account: Options,
    source: Annotated[Path, typer.Option("--source", help="File or directory to upload.", show_default=False)],
    share_name: ShareName,
    path: Annotated[str, typer.Option("--path", "-p", help="Directory on the share, or path of the new file.")] = "",
    quiet: Quiet = False,
) -> Any:
    """Upload a file or a whole directory; a file appears on the share when it is complete."""
    from horovodjob.azurefiles.upload import upload_directory, upload_file

    target = share_path(path)
    if not source.exists():
        raise UsageError(f"--source {source} does not exist")
    opened = open_share(share_name, account)
    if path.endswith("/") or not target or opened.is_directory(target):
        target = joined(target, source.resolve().name)
    with progress_bars(quiet=quiet) as progress:
        (upload_directory if source.is_dir() else upload_file)(opened, source, target, progress)
    return transfer_record(target, None if source.is_dir() else opened.state(target).size)


@command(file, "download", table=TRANSFER_TABLE)
@with_account
def download(
    account: Options,
    path: Annotated[str, typer.Option("--path", "-p", help="File or directory of the share.", show_default=False)],
    share_name: ShareName,
    destination: Annotated[
        Path, typer.Option("--dest", help="Directory or path of the new file. Default: the current directory.")
    ] = Path(),
    quiet: Quiet = False,
) -> Any:
    """Download a file or a whole directory; resume an interrupted download."""
    return download_to(destination, open_share(share_name, account), share_path(path), name=share_name, quiet=quiet)


@command(file, "list", table=FILE_TABLE)
@with_account
def list_(
    account: Options,
    share_name: ShareName,
    path: Annotated[str, typer.Option("--path", "-p", help="Directory of the share. Default: its root.")] = "",
) -> Any:
    """List the files and directories of a directory."""
    directory_path = share_path(path)
    opened = open_share(share_name, account)
    return [file_record(entry) for entry in opened.entries(directory_path)]
