"""Decides which run a start continues: that of the directory, an earlier one with the same settings, or a new one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovodjob_trainer.checkpoint.earlier_runs import (
    EARLIER_RUNS,
    checkpoint_files,
    find_earlier_run,
    run_of_checkpoint,
)
from horovodjob_trainer.checkpoint.program import Program
from horovodjob_trainer.checkpoint.run_file import RUN_FILE, RunFile, read_run_file, summary
from horovodjob_trainer.errors import OutputError


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings that define what a run trains. With `resume` "continue", those in `changeable` can change."""

    values: Mapping[str, Any]
    changeable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a program in a directory.

    `resume` is the setting of this name. A restart is a later attempt of a job.
    """

    directory: Path
    settings: RunSettings
    resume: str
    is_restart: bool
    program: Program


def select_run(start: Start, log: Callable[[str], None]) -> str | None:
    """The identity of the run to continue, None for a new one. Changes no file.

    Raises OutputError if a restart would lose the checkpoints of an unfinished run.
    """
    if start.resume == "never":
        return None
    stored = _stored_run(start)
    if stored is not None and not stored.changes(start.settings.values):
        return stored.run
    earlier = find_earlier_run(start.directory, start.settings.values)
    if earlier is not None:
        log(f"Resuming an earlier run in {start.directory}, which has these settings")
        return earlier.run
    return None if stored is None else _changed_run(start, stored, log)


def _changed_run(start: Start, stored: RunFile, log: Callable[[str], None]) -> str | None:
    """The run if it continues with other settings, else None."""
    changes = stored.changes(start.settings.values)
    difference = f"the unfinished run in {start.directory} has different settings: {summary(changes)}"
    if not _has_checkpoints(start.directory, stored.run):
        log(f"Starting a new run: {difference}; it has no checkpoint yet")
        return None
    fixed = sorted(changes.keys() - start.settings.changeable)
    if start.resume == "continue" and not fixed:
        log(f"Continuing the unfinished run with other settings: {summary(changes)}")
        return stored.run
    if start.resume == "continue" or start.is_restart:
        raise OutputError(f"{difference}. {_choices(fixed, start.program)}")
    folder = start.directory / EARLIER_RUNS / stored.run
    log(f"Not resuming: {difference}. Its checkpoints are now in {folder}; a start with its settings resumes it")
    return None


def _choices(fixed: list[str], program: Program) -> str:
    new = f"use {program.resume_never} for a new run, which keeps its checkpoints"
    others = f"start it with the earlier settings, or {new}"
    if fixed:
        return f"It cannot continue with another {' or '.join(fixed)}: {others}"
    continued = f"use {program.resume_continue} to continue with the new settings"
    return f"It does not start from the beginning: {continued}, {others}"


def _stored_run(start: Start) -> RunFile | None:
    try:
        return read_run_file(start.directory)
    except ValueError as error:
        if start.is_restart and checkpoint_files(start.directory):
            raise OutputError(
                f"{start.directory / RUN_FILE} is damaged, so the run of the checkpoints is unknown; restore it, or "
                f"use {start.program.resume_never} for a new run, which keeps them"
            ) from error
        return None


def _has_checkpoints(directory: Path, run: str) -> bool:
    """Whether a file can be a checkpoint of the run, also one that cannot be read now."""
    return any(run_of_checkpoint(path) in (run, None) for path in checkpoint_files(directory))
