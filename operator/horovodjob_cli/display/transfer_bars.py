"""The progress bars of transfers: on standard error, and only on a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from horovodjob.client.messages import Display, Transfer
from horovodjob.escaping import escaped

NAME_WIDTH = 28


class TerminalDisplay(Display):
    """Shows messages and progress bars, unless it is quiet."""

    def transfer(self) -> AbstractContextManager[Transfer]:
        return super().transfer() if self.quiet or not sys.stderr.isatty() else _bars()


class _Bars(Transfer):
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
def _bars() -> Iterator[Transfer]:
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
        yield _Bars(bars)


def shortened_name(name: str) -> str:
    """The name, with an ellipsis in the middle if it is too long for a terminal of 80 columns."""
    name = escaped(name)
    if len(name) <= NAME_WIDTH:
        return name
    half = (NAME_WIDTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
