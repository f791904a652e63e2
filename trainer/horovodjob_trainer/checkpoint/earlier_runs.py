"""The checkpoints of other runs in an output directory, each run in a folder of its own.

DIR/checkpoint-3.h5                                the run of the directory
DIR/earlier-runs/RUN/checkpoint-3.h5               another run
DIR/earlier-runs/RUN/.horovodjob-run.json          if the run is unfinished and its settings resume it
DIR/earlier-runs/unreadable-RUN/checkpoint-3.h5    files that cannot be read when RUN starts
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from horovodjob_trainer.checkpoint.checkpoint_file import READ_ERRORS, read_description
from horovodjob_trainer.checkpoint.run_file import RUN, RUN_FILE, RunFile, read_run_file

EARLIER_RUNS = "earlier-runs"
CHECKPOINT_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?\.h5")


def checkpoint_files(folder: Path) -> list[Path]:
    """The files with the name of a checkpoint."""
    return [path for path in folder.iterdir() if CHECKPOINT_NAME.fullmatch(path.name)]


def run_of_checkpoint(path: Path) -> str | None:
    """The run that has written the checkpoint, None if the file cannot be read."""
    try:
        run = read_description(path).run
    except READ_ERRORS:
        return None
    return run if isinstance(run, str) and RUN.fullmatch(run) else None


def find_earlier_run(directory: Path, settings: Mapping[str, Any]) -> RunFile | None:
    """The unfinished earlier run with these settings."""
    for folder in _folders(directory):
        with suppress(ValueError):
            stored = read_run_file(folder)
            if stored is not None and not stored.changes(settings):
                return stored
    return None


def place_run(directory: Path, run: str, *, keeps_previous: bool, log: Callable[[str], None]) -> None:
    """Move the checkpoints of other runs to their folders, and those of this run into the directory.

    With `keeps_previous`, a start with the settings of the previous unfinished run resumes it. A start that was
    interrupted here is completed by the next one.
    """
    previous = None
    with suppress(ValueError):
        previous = read_run_file(directory)
    is_previous = previous is not None and previous.run == run
    if previous is not None and not is_previous and keeps_previous:
        _move(directory / RUN_FILE, _folder(directory, previous.run))
    moved: dict[Path, int] = {}
    for path in checkpoint_files(directory):
        owner = run_of_checkpoint(path) or (run if is_previous else f"unreadable-{run}")
        if owner != run:
            folder = _folder(directory, owner)
            _move(path, folder)
            moved[folder] = moved.get(folder, 0) + 1
    for folder, count in moved.items():
        log(f"Moved {count} checkpoint{'' if count == 1 else 's'} of another run to {folder}")
    own = _folder(directory, run)
    for path in checkpoint_files(own) if own.is_dir() else []:
        _move(path, directory)


def forget_earlier_run(directory: Path, run: str) -> None:
    """Delete the folder of a run that is the run of the directory again."""
    folder = _folder(directory, run)
    (folder / RUN_FILE).unlink(missing_ok=True)
    with suppress(OSError):  # it does not exist, or contains other files
        folder.rmdir()
    with suppress(OSError):
        folder.parent.rmdir()


def _folders(directory: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from sorted(path for path in (directory / EARLIER_RUNS).iterdir() if path.is_dir())


def _folder(directory: Path, run: str) -> Path:
    return directory / EARLIER_RUNS / run


def _move(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.replace(path, folder / path.name)
