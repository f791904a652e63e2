"""Downloads, and the progress bars of transfers: on standard error, and only on a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horovodjob.azurefiles.files import FileStore
from horovodjob.escaping import escaped
from horovodjob_cli.errors import UsageError
from horovodjob_cli.files.shares import transfer_record

NAME_WIDTH = 28


def download_to(destination: Path, store: FileStore, source: str, *, name: str, quiet: bool) -> Any:
    """Download a file or a whole directory; `name` is the local name for the root."""
    from horovodjob.azurefiles.download import download_directory, download_file, local_name

    target = destination / local_name(source.rpartition("/")[2] or name) if destination.is_dir() else destination
    if not target.parent.is_dir():
        raise UsageError(f"--dest {destination}: the directory {target.parent} does not exist")
    is_directory = not source or store.is_directory(source)
    if target.exists() and target.is_dir() is not is_directory:
        raise UsageError(f"--dest {target} exists and is not a {'directory' if is_directory else 'file'}")
    with progress_bars(quiet=quiet) as display:
        if is_directory:
            download_directory(store, source, target, display.progress, display.plan)
        else:
            download_file(store, source, target, display.progress)
    return transfer_record(str(target), None if is_directory else target.stat().st_size)


class Display:
    """Shows nothing."""

    def plan(self, files: int, size: int) -> None:
        """Begin to show a transfer of several files."""

    def progress(self, path: str, done: int, total: int) -> None:
        """Show the state of a file."""


class Bars(Display):
    """One bar for the whole transfer, and one for each file that is active; a single file keeps its bar."""

    def __init__(self, bars: Any) -> None:
        self._bars, self._lock = bars, threading.Lock()
        self._files: int | None = None
        self._total: Any = None
        self._active: dict[str, Any] = {}
        self._done: dict[str, int] = {}
        self._ended = 0

    def plan(self, files: int, size: int) -> None:
        self._files = files
        self._total = self._bars.add_task(f"0 of {files} files", total=size)

    def progress(self, path: str, done: int, total: int) -> None:
        with self._lock:  # files are transferred by several threads
            before = self._done.get(path, -1)
            self._done[path] = done
            if done < total or self._files is None:
                if path not in self._active:
                    self._active[path] = self._bars.add_task(shortened_name(path.rpartition("/")[2]), total=total)
                self._bars.update(self._active[path], completed=done, total=total)
            elif path in self._active:
                self._bars.remove_task(self._active.pop(path))
            if self._files is not None:
                self._ended += (done >= total) - (0 <= total <= before)
                text = f"{self._ended} of {self._files} files"
                self._bars.update(self._total, advance=done - max(before, 0), description=text)


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Display]:
    """Shows the progress on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield Display()
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
        yield Bars(bars)


def shortened_name(name: str) -> str:
    """The name, with an ellipsis in the middle if it is too long for a terminal of 80 columns."""
    name = escaped(name)
    if len(name) <= NAME_WIDTH:
        return name
    half = (NAME_WIDTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
