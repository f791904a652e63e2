"""Downloads, and the progress bars of transfers: on standard error, and only on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horovodjob.azurefiles.files import FileStore, Progress, no_progress
from horovodjob_cli.errors import UsageError
from horovodjob_cli.shares import transfer_record

NAME_WIDTH = 28


def download_to(destination: Path, store: FileStore, source: str, *, name: str, quiet: bool) -> Any:
    """Download a file or a whole directory; `name` is the local name for the root."""
    from horovodjob.azurefiles.download import download_directory, download_file

    target = destination / (source.rpartition("/")[2] or name) if destination.is_dir() else destination
    if not target.parent.is_dir():
        raise UsageError(f"--dest {destination}: the directory {target.parent} does not exist")
    is_directory = not source or store.is_directory(source)
    if target.exists() and target.is_dir() is not is_directory:
        raise UsageError(f"--dest {target} exists and is not a {'directory' if is_directory else 'file'}")
    with progress_bars(quiet=quiet) as progress:
        (download_directory if is_directory else download_file)(store, source, target, progress)
    return transfer_record(str(target), None if is_directory else target.stat().st_size)


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Progress]:
    """Shows a bar for each file that is transferred."""
    if quiet or not sys.stderr.isatty():
        yield no_progress
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=None),
        progress.DownloadColumn(binary_units=True),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(compact=True),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=False) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def show(path: str, done: int, total: int) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(shortened_name(path.rpartition("/")[2]), total=total)
            bars.update(tasks[path], completed=done, total=total)

        yield show


def shortened_name(name: str) -> str:
    """The name, with an ellipsis in the middle if it is too long for a terminal of 80 columns."""
    if len(name) <= NAME_WIDTH:
        return name
    half = (NAME_WIDTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
