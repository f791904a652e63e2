"""`hvj storage`: shares, directories and files on Azure Files, with the options of `az storage`."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.files import joined
from horovodjob.azurefiles.location import share_path
from horovodjob.client.errors import NotFound, UsageError
from horovodjob.client.files.file_transfers import download_to, file_record, transfer_record
from horovodjob.client.files.share_access import open_share
from horovodjob_cli.account_options import ShareName, with_account
from horovodjob_cli.commands import command, confirm, group
from horovodjob_cli.display.transfer_bars import TerminalDisplay
from horovodjob_cli.options import Name, Quiet, Yes
from horovodjob_cli.tables import FILE_TABLE, TRANSFER_TABLE

if TYPE_CHECKING:
    from horovodjob.azurefiles.share import Share

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


@command(directory, "delete")
@with_account
def delete_directory(
    account: Options,
    name: Name,
    share_name: ShareName,
    yes: Yes = False,
) -> None:
    """Delete a directory with its contents."""
    from horovodjob.azurefiles.upload import delete_entry

    target = share_path(name)
    if not target:
        raise UsageError("--name is the root of the share, which cannot be deleted")
    opened = open_share(share_name, account)
    entries = opened.entries(target)
    confirm(f"Delete {target} with {len(entries)} files and directories on share {share_name}?", yes)
    delete_entry(opened, target, is_directory=True)


@command(file, "upload", table=TRANSFER_TABLE)
@with_account
def upload(
    account: Options,
    source: Annotated[Path, typer.Option("--source", help="File or directory to upload.", show_default=False)],
    share_name: ShareName,
    path: Annotated[str, typer.Option("--path", "-p", help="Directory on the share, or path of the new file.")] = "",
    quiet: Quiet = False,
) -> Any:
    """Upload a file or a whole directory; a file appears on the share when it is complete.

    A directory that is uploaded again sends the files that the share lacks, or has with another size or time.
    """
    target = share_path(path)
    if not source.exists():
        raise UsageError(f"--source {source} does not exist")
    opened = open_share(share_name, account)
    if path.endswith("/") or not target or opened.is_directory(target):
        target = joined(target, source.resolve().name)
    elif source.is_file():
        check_file_name(opened, source, target)
    return upload_to(opened, source, target, quiet=quiet)


@command(file, "sync", table=TRANSFER_TABLE)
@with_account
def sync(
    account: Options,
    source: Annotated[Path, typer.Option("--source", help="Directory to upload.", show_default=False)],
    share_name: ShareName,
    path: Annotated[str, typer.Option("--path", "-p", help="Directory on the share. Default: its root.")] = "",
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete files of that directory that the source does not have.")
    ] = False,
    quiet: Quiet = False,
) -> Any:
    """Upload the files of a directory that the share lacks, or has with another size or time."""
    if not source.is_dir():
        raise UsageError(f"--source {source} is not a directory")
    return upload_to(open_share(share_name, account), source, share_path(path), quiet=quiet, delete=delete)


def upload_to(share: "Share", source: Path, target: str, *, quiet: bool, delete: bool = False) -> Any:
    """Upload a file or a whole directory to this path."""
    from horovodjob.azurefiles.upload import upload_directory, upload_file

    with TerminalDisplay(quiet=quiet).transfer() as transfer:
        if source.is_dir():
            upload_directory(share, source, target, transfer.progress, transfer.plan, delete=delete)
        else:
            upload_file(share, source, target, transfer.progress)
    return transfer_record(target, None if source.is_dir() else share.state(target).size)


def check_file_name(share: "Share", source: Path, target: str) -> None:
    """Raises NotFound if the path seems to be of a directory that does not exist, and not of the new file."""
    from horovodjob.azurefiles.errors import FileNotFound

    name = target.rpartition("/")[2]
    if not source.suffix or PurePosixPath(name).suffix:
        return
    try:
        share.state(target)
    except FileNotFound:
        raise NotFound(
            f"--path {target}: directory {target} does not exist on share {share.name}; create it with `hvj storage "
            f"directory create --name {target} --share-name {share.name}`, or end the path with the file's name"
        ) from None


@command(file, "delete")
@with_account
def delete_file(
    account: Options,
    path: Annotated[str, typer.Option("--path", "-p", help="File of the share.", show_default=False)],
    share_name: ShareName,
    yes: Yes = False,
) -> None:
    """Delete a file."""
    opened, target = open_share(share_name, account), share_path(path)
    if opened.is_directory(target):
        raise UsageError(
            f"{target or 'the root'} is a directory; `hvj storage directory delete --name {target}` deletes one"
        )
    opened.state(target)
    confirm(f"Delete {target} on share {share_name}?", yes)
    opened.delete_file(target)


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
    display = TerminalDisplay(quiet=quiet)
    return download_to(destination, open_share(share_name, account), share_path(path), name=share_name, display=display)


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
