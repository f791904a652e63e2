"""The output directory of a run: the identity of the run, its checkpoints and the trained model."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovodjob_trainer.atomic_file import PARTIAL_PREFIX, atomic_write, check_free_space
from horovodjob_trainer.checkpoint.checkpoint_file import (
    READ_ERRORS,
    read_description,
    restore_variables,
    size_bytes,
    training_variables,
)
from horovodjob_trainer.checkpoint.earlier_runs import checkpoint_files, forget_earlier_run, place_run
from horovodjob_trainer.checkpoint.heartbeat import Heartbeat
from horovodjob_trainer.checkpoint.ownership import check_owner, next_owner, release_directory, write_owner
from horovodjob_trainer.checkpoint.program import Program
from horovodjob_trainer.checkpoint.run_file import RUN_FILE, write_run_file
from horovodjob_trainer.checkpoint.run_selection import RunSettings, Start, select_run
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError, VolumeError
from horovodjob_trainer.launch import Launch

MODEL_DIRECTORY = "saved_models"
# A live run does not pause a write for so long, and an SMB server updates the time of a file during a long write.
ABANDONED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """The output directory of a run with the identity `run`.

    Each checkpoint contains the identity. A run therefore never resumes from files of an earlier run in the directory.
    Each start of the run has a new `token`. Before each write, the run checks that no later start owns the directory.
    `program` is the one that keeps the run.
    """

    directory: Path
    run: str
    model_name: str
    token: str
    program: Program

    def check_owner(self) -> None:
        """Raise OutputError if a run that started later owns the directory."""
        check_owner(self.directory, self.token, self.program)

    @contextmanager
    def write(self, target: Path) -> Iterator[Path]:
        """A temporary path that replaces `target` at the end. Raises OutputError if a later run owns the directory."""
        self.check_owner()
        with atomic_write(target, writer=self.token, check=self.check_owner) as path:  # the write can take minutes
            yield path

    def save_models(self, model: Any, log: Callable[[str], None]) -> None:
        """Write the trained model as .h5 and .keras. If Keras can rebuild neither, write the weights.

        Raises VolumeError, and OutputError if a later run owns the directory.
        """
        try:
            self._save_models(model, log)
        except (OSError, RuntimeError) as error:  # HDF5 raises RuntimeError for some errors of the disk
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
            raise VolumeError(f"cannot save the trained model in {self.directory / MODEL_DIRECTORY}: {reason}; the "
                              "next attempt tries again") from error  # fmt: skip

    def _save_models(self, model: Any, log: Callable[[str], None]) -> None:
        stem = self.directory / MODEL_DIRECTORY / self.model_name
        saved = 0
        for suffix in (".h5", ".keras"):
            check_free_space(stem.parent, size_bytes(training_variables(model)))
            try:
                with self.write(stem.with_name(stem.name + suffix)) as path:
                    model.save(path)
            except NotImplementedError as error:
                log(f"Not saved as {stem}{suffix}: {' '.join(str(error).split())[:200]}")
                continue
            saved += 1
            log(f"Saved trained model at {stem}{suffix}")
        if not saved:
            with self.write(stem.with_name(f"{stem.name}.weights.h5")) as path:
                model.save_weights(path)
            log(f"Saved its weights at {stem}.weights.h5")

    def checkpoint_path(self, epoch: int, step: int = 0) -> Path:
        """The file of the checkpoint after this epoch and this number of steps in the next one."""
        return self.directory / (f"checkpoint-{epoch}-{step}.h5" if step else f"checkpoint-{epoch}.h5")

    def own_checkpoints(self, log: Callable[[str], None] = lambda _: None) -> list[tuple[RunState, Path]]:
        """The checkpoints of this run and their states, from the oldest to the newest. Logs files that are damaged.

        The order is that of the positions in the data: the number of steps in a name depends on the number of ranks.
        """
        own = []
        for path in checkpoint_files(self.directory):
            try:
                description = read_description(path)
            except READ_ERRORS as error:
                log(_skip_message(path, error))
                continue
            if description.run == self.run:
                own.append((description.state, path))
        return sorted(own, key=lambda entry: entry[0].position)

    def restore(self, variables: Sequence[Any], log: Callable[[str], None]) -> RunState | None:
        """Restore the variables from the newest intact checkpoint of this run.

        Returns its state, None if there is no checkpoint. Raises OutputError if none of them can be used.
        """
        last_error = "it is damaged"
        for _, path in reversed(self.own_checkpoints(log)):
            try:
                return restore_variables(path, variables)
            except READ_ERRORS as error:
                last_error = _reason(error)
                log(_skip_message(path, error))
        if files := checkpoint_files(self.directory):
            raise OutputError(f"no checkpoint of the unfinished run in {self.directory} can be used, such as "
                              f"{files[0].name}: {last_error}; start it with the model and the files of the run, or "
                              f"use {self.program.resume_never} for a new run, which keeps its "
                              "checkpoints")  # fmt: skip
        return None

    def finish(self) -> None:
        """End the run. A later run in this directory has a new identity."""
        try:
            self.check_owner()
        except OutputError:  # the models are complete, and the files are those of the later run
            return
        (self.directory / RUN_FILE).unlink(missing_ok=True)
        release_directory(self.directory)


@contextmanager
def active(output: OutputDirectory | None) -> Iterator[None]:
    """Within this context, the run is active: a different job does not start in its directory."""
    heartbeat = None if output is None else Heartbeat(output.directory, output.token).start()
    try:
        yield
    finally:
        if heartbeat is not None:
            heartbeat.stop()


def open_output_directory(
    directory: Path,
    model_name: str,
    settings: RunSettings,
    program: Program,
    *,
    launch: Launch,
    resume: str,
    log: Callable[[str], None],
) -> OutputDirectory:
    """Create the directory if necessary, make this run its owner, and store the identity of the run in it.

    Checkpoints of other runs in it are moved to folders of their own. Raises OutputError.
    """
    try:
        (directory / MODEL_DIRECTORY).mkdir(parents=True, exist_ok=True)
        owner, is_same_job = next_owner(directory, launch, program)
        is_restart = program.keeps_run or launch.attempt > 1 or is_same_job
        selected = select_run(Start(directory, settings, resume, is_restart, program), log)
        run = selected or secrets.token_hex(8)
        write_owner(directory, owner)
        for folder in (directory, directory / MODEL_DIRECTORY):
            _delete_abandoned_files(folder, owner.token)
        place_run(directory, run, keeps_previous=resume != "never", log=log)
        write_run_file(directory, run, settings.values, writer=owner.token)
        forget_earlier_run(directory, run)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot write to {directory}: {reason}; use {program.another_directory}") from error
    return OutputDirectory(directory, run, model_name, owner.token, program)


def _skip_message(path: Path, error: Exception) -> str:
    return f"Skipping the checkpoint {path}, which cannot be read: {_reason(error)}"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _delete_abandoned_files(folder: Path, token: str) -> None:
    """Delete partial files of writes that were interrupted. Also checks that the folder is writable."""
    probe = folder / f"{PARTIAL_PREFIX}{token}"  # the first checkpoint may be hours away
    probe.write_bytes(b"")
    now = probe.stat().st_mtime  # by the clock of the file server
    for partial in folder.glob(f"{PARTIAL_PREFIX}*"):
        with suppress(FileNotFoundError):
            if partial == probe or now - partial.lstat().st_mtime > ABANDONED_SECONDS:
                partial.unlink()
