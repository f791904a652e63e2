"""Progress bars of transfers: on standard error, and only on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from horovodjob.azurefiles.files import Progress, no_progress

NAME_WIDTH = 28


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
                tasks[path] = bars.add_task(shortened(path.rpartition("/")[2]), total=total)
            bars.update(tasks[path], completed=done, total=total)

        yield show


def shortened(name: str) -> str:
    """The name, with an ellipsis in its middle where it is too long for a terminal of 80 columns."""
    if len(name) <= NAME_WIDTH:
        return name
    half = (NAME_WIDTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
