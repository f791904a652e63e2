"""Files that rank 0 writes: whole or not at all, and tied to the run that they belong to."""

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from horovodjob_trainer.errors import OutputError

MODEL_DIRECTORY = "saved_models"
MODEL_NAME = "keras_cifar10_trained_model"
PARTIAL_PREFIX = ".partial-"
RUN_FILE = ".horovodjob-run.json"
RUN_ATTRIBUTE, EPOCH_ATTRIBUTE = "horovodjob_run", "horovodjob_epoch"
# What h5py and Keras raise for files that are cut off, foreign or of another model.
UNREADABLE = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Output:
    """The output directory of a run, which has an identity of its own.

    A checkpoint carries the identity: files that an earlier run left in the same directory are never taken for
    this one's progress.
    """

    directory: Path
    run: str

    @property
    def models(self) -> tuple[Path, Path]:
        """The trained model, in the format of the tutorial and in Keras' own."""
        stem = self.directory / MODEL_DIRECTORY / MODEL_NAME
        return stem.with_suffix(".h5"), stem.with_suffix(".keras")

    def checkpoint(self, epoch: int) -> Path:
        return self.directory / f"checkpoint-{epoch}.h5"

    def save_checkpoint(self, model: Any, epoch: int) -> None:
        """Writes model and optimizer as they are after `epoch` epochs."""
        with _whole(self.checkpoint(epoch)) as path:
            model.save(path)
            with h5py.File(path, "r+") as file:
                file.attrs[RUN_ATTRIBUTE] = self.run
                file.attrs[EPOCH_ATTRIBUTE] = epoch

    def save_models(self, model: Any) -> None:
        for target in self.models:
            with _whole(target) as path:
                model.save(path)

    def restored_epoch(self, model: Any, say: Callable[[str], None]) -> int:
        """Epochs done by the newest readable checkpoint of this run, whose state `model` takes; 0 without one."""
        for epoch in sorted(_epochs(self.directory), reverse=True):
            path = self.checkpoint(epoch)
            try:
                with h5py.File(path) as file:
                    if file.attrs.get(RUN_ATTRIBUTE) != self.run:
                        continue
                    if file.attrs[EPOCH_ATTRIBUTE] != epoch:
                        raise ValueError("it is of another epoch than its name says")
                _restore(model, path)
            except UNREADABLE as error:
                reason = " ".join(str(error).split())
                say(f"Skipping the checkpoint {path}, which cannot be read: {reason[:200]}")
                continue
            return epoch
        return 0

    def finish(self) -> None:
        """Ends the run: what comes later in this directory is another one."""
        (self.directory / RUN_FILE).unlink(missing_ok=True)


def opened_output(directory: Path, *, resume: bool, dataset: str) -> Output:
    """The directory, made if need be and found writable, with the identity of the run in it.

    `resume` continues the unfinished run that is there, if it trains on the same data set.
    """
    try:
        (directory / MODEL_DIRECTORY).mkdir(parents=True, exist_ok=True)
        for folder in (directory, directory / MODEL_DIRECTORY):
            for left in folder.glob(f"{PARTIAL_PREFIX}*"):
                left.unlink(missing_ok=True)
            with _whole(folder / ".writable") as probe:  # hours later would be late to find out
                probe.write_bytes(b"")
            (folder / ".writable").unlink(missing_ok=True)
        run = _unfinished_run(directory, dataset) if resume else None
        if run is None:
            run = secrets.token_hex(8)
            with _whole(directory / RUN_FILE) as path:
                path.write_text(json.dumps({"run": run, "dataset": dataset}) + "\n")
    except OSError as error:
        raise OutputError(f"cannot write to {directory}: {error.strerror or error}; give another --dir") from error
    return Output(directory, run)


def _unfinished_run(directory: Path, dataset: str) -> str | None:
    try:
        known = json.loads((directory / RUN_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(known, dict) or known.get("dataset") != dataset:
        return None
    run = known.get("run")
    return run if isinstance(run, str) else None


def _epochs(directory: Path) -> Iterator[int]:
    for path in directory.iterdir():
        if match := re.fullmatch(r"checkpoint-([1-9][0-9]{0,8})\.h5", path.name):
            yield int(match[1])


def _restore(model: Any, path: Path) -> None:
    """Gives the model weights and optimizer state of the file, or leaves it as it is and raises.

    Keras' own load_model forgets the optimizer's slots of an .h5 file (seen with 3.15).
    """
    optimizer = model.optimizer.variables
    with h5py.File(path) as file:
        file["model_weights"].visititems(lambda _, item: item[()] if isinstance(item, h5py.Dataset) else None)
        group = file["optimizer_weights"]
        values = [group[name][()] for name in _names(group)]
    if [value.shape for value in values] != [tuple(variable.shape) for variable in optimizer]:
        raise ValueError("its optimizer is another one")
    model.load_weights(path)
    for variable, value in zip(optimizer, values, strict=True):
        variable.assign(value)


def _names(group: Any) -> list[str]:
    # Keras cuts the list into pieces where an attribute would be too long.
    if "weight_names" in group.attrs:
        pieces = [group.attrs["weight_names"]]
    else:
        pieces = [
            group.attrs[f"weight_names{n}"] for n in range(sum(a.startswith("weight_names") for a in group.attrs))
        ]
    return [name.decode() if isinstance(name, bytes) else str(name) for piece in pieces for name in piece]


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A path to write to that becomes `target` in one step once everything is on the disk."""
    path = target.with_name(f"{PARTIAL_PREFIX}{target.name}")  # Keras looks at the suffix
    try:
        yield path
        with path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(path, target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
