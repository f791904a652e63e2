"""The output directory of a run: the identity of the run, its checkpoints and the trained model."""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovodjob_trainer.atomic_file import PARTIAL_PREFIX, atomic_write
from horovodjob_trainer.checkpoint.layout import READ_ERRORS, read_description, restore_variables
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError

MODEL_DIRECTORY = "saved_models"
RUN_FILE = ".horovodjob-run.json"
CHECKPOINT_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?\.h5")


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """The output directory of a run with the identity `run`.

    Each checkpoint contains the identity. A run therefore never resumes from files of an earlier run in the directory.
    """

    directory: Path
    run: str
    model_name: str

    def save_models(self, model: Any, log: Callable[[str], None]) -> None:
        """Write the trained model as .h5 and .keras. If Keras can rebuild neither, write the weights."""
        stem = self.directory / MODEL_DIRECTORY / self.model_name
        saved = 0
        for suffix in (".h5", ".keras"):
            try:
                with atomic_write(stem.with_name(stem.name + suffix)) as path:
                    model.save(path)
            except NotImplementedError as error:
                log(f"Not saved as {stem}{suffix}: {' '.join(str(error).split())[:200]}")
                continue
            saved += 1
            log(f"Saved trained model at {stem}{suffix}")
        if not saved:
            with atomic_write(stem.with_name(f"{stem.name}.weights.h5")) as path:
                model.save_weights(path)
            log(f"Saved its weights at {stem}.weights.h5")

    def checkpoint_path(self, epoch: int, step: int = 0) -> Path:
        """The file of the checkpoint after this epoch and this number of steps in the next one."""
        return self.directory / (f"checkpoint-{epoch}-{step}.h5" if step else f"checkpoint-{epoch}.h5")

    def checkpoints(self) -> list[Path]:
        """All checkpoints in the directory, of this run and of others, from the newest to the oldest by name."""
        names = [(match, path) for path in self.directory.iterdir() if (match := CHECKPOINT_NAME.fullmatch(path.name))]
        names.sort(key=lambda entry: (int(entry[0][1]), int(entry[0][2] or 0)), reverse=True)
        return [path for _, path in names]

    def restore(self, variables: Sequence[Any], log: Callable[[str], None]) -> RunState | None:
        """Restore the variables from the newest intact checkpoint of this run. Returns its state, None without one."""
        for path in self.checkpoints():
            try:
                if read_description(path).run == self.run:
                    return restore_variables(path, variables)
            except READ_ERRORS as error:
                log(f"Skipping the checkpoint {path}, which cannot be read: {' '.join(str(error).split())[:200]}")
        return None

    def finish(self) -> None:
        """End the run. A later run in this directory has a new identity."""
        (self.directory / RUN_FILE).unlink(missing_ok=True)


def open_output_directory(
    directory: Path, model_name: str, settings: Mapping[str, Any], *, resume: bool, log: Callable[[str], None]
) -> OutputDirectory:
    """Create the directory if necessary, check that it is writable, and store the identity of the run in it.

    `resume` keeps the identity of an unfinished run that has the same settings. Raises OutputError.
    """
    try:
        (directory / MODEL_DIRECTORY).mkdir(parents=True, exist_ok=True)
        for folder in (directory, directory / MODEL_DIRECTORY):
            for partial in folder.glob(f"{PARTIAL_PREFIX}*"):
                partial.unlink(missing_ok=True)
            with atomic_write(folder / ".writable") as probe:  # the first checkpoint may be hours away
                probe.write_bytes(b"")
            (folder / ".writable").unlink(missing_ok=True)
        run = _unfinished_run(directory, settings, log) if resume else None
        if run is None:
            run = secrets.token_hex(8)
            with atomic_write(directory / RUN_FILE) as path:
                path.write_text(json.dumps({"run": run, "settings": settings}) + "\n")
    except OSError as error:
        raise OutputError(f"cannot write to {directory}: {error.strerror or error}; use another --dir") from error
    return OutputDirectory(directory, run, model_name)


def _unfinished_run(directory: Path, settings: Mapping[str, Any], log: Callable[[str], None]) -> str | None:
    try:
        stored = json.loads((directory / RUN_FILE).read_text())
        run, stored_settings = stored["run"], dict(stored["settings"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    current = json.loads(json.dumps(settings))
    names = sorted(stored_settings.keys() | current.keys())
    changed = [name for name in names if stored_settings.get(name) != current.get(name)]
    if changed:
        changes = "; ".join(
            f"{name} was {stored_settings.get(name)} and is {current.get(name)}" for name in changed[:3]
        )
        log(f"Not resuming the unfinished run in {directory}, which has different settings: {changes}")
        return None
    return run if isinstance(run, str) else None
