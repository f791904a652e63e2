"""The output directory of a run: its identity, its checkpoints, and the trained model at its end."""

import copy
import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovodjob_trainer.atomic_file import PARTIAL_PREFIX, whole
from horovodjob_trainer.checkpoint.layout import UNREADABLE, Array, Form, described, restored
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError

MODEL_DIRECTORY = "saved_models"
RUN_FILE = ".horovodjob-run.json"
NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?\.h5")


@dataclass(frozen=True, slots=True)
class Output:
    """The output directory of a run, which has an identity of its own.

    A checkpoint carries the identity: files that an earlier run left in the same directory are never taken for
    this one's progress.
    """

    directory: Path
    run: str
    model_name: str

    def save_models(self, model: Any, say: Callable[[str], None]) -> None:
        """Writes the trained model as .h5 and .keras; of a class that Keras cannot rebuild, the weights."""
        stem = self.directory / MODEL_DIRECTORY / self.model_name
        saved = 0
        for suffix in (".h5", ".keras"):
            try:
                with whole(stem.with_name(stem.name + suffix)) as path:
                    model.save(path)
            except NotImplementedError as error:
                say(f"Not saved as {stem}{suffix}: {' '.join(str(error).split())[:200]}")
                continue
            saved += 1
            say(f"Saved trained model at {stem}{suffix}")
        if not saved:
            with whole(stem.with_name(f"{stem.name}.weights.h5")) as path:
                model.save_weights(path)
            say(f"Saved its weights at {stem}.weights.h5")

    def checkpoint(self, epoch: int, step: int = 0) -> Path:
        return self.directory / (f"checkpoint-{epoch}-{step}.h5" if step else f"checkpoint-{epoch}.h5")

    def checkpoints(self) -> list[Path]:
        """All checkpoints in the directory, of whatever run, by their names from the newest to the oldest."""
        found = [(match, path) for path in self.directory.iterdir() if (match := NAME.fullmatch(path.name))]
        found.sort(key=lambda entry: (int(entry[0][1]), int(entry[0][2] or 0)), reverse=True)
        return [path for _, path in found]

    def restored(self, variables: Sequence[Any], say: Callable[[str], None]) -> RunState | None:
        """The state of the newest checkpoint of this run that is whole, whose values the variables take."""
        for path in self.checkpoints():
            try:
                if described(path).run == self.run:
                    return restored(path, variables)
            except UNREADABLE as error:
                say(f"Skipping the checkpoint {path}, which cannot be read: {' '.join(str(error).split())[:200]}")
        return None

    def finish(self) -> None:
        """Ends the run: what comes later in this directory is another one."""
        (self.directory / RUN_FILE).unlink(missing_ok=True)


def opened_output(
    directory: Path, model_name: str, settings: Mapping[str, Any], *, resume: bool, say: Callable[[str], None]
) -> Output:
    """The directory, made if need be and found writable, with the identity of the run in it.

    `resume` goes on with the unfinished run that is there if it has the same settings, and says if it has not.
    """
    try:
        (directory / MODEL_DIRECTORY).mkdir(parents=True, exist_ok=True)
        for folder in (directory, directory / MODEL_DIRECTORY):
            for left in folder.glob(f"{PARTIAL_PREFIX}*"):
                left.unlink(missing_ok=True)
            with whole(folder / ".writable") as probe:  # hours later would be late to find out
                probe.write_bytes(b"")
            (folder / ".writable").unlink(missing_ok=True)
        run = _unfinished_run(directory, settings, say) if resume else None
        if run is None:
            run = secrets.token_hex(8)
            with whole(directory / RUN_FILE) as path:
                path.write_text(json.dumps({"run": run, "settings": settings}) + "\n")
    except OSError as error:
        raise OutputError(f"cannot write to {directory}: {error.strerror or error}; give another --dir") from error
    return Output(directory, run, model_name)


def _unfinished_run(directory: Path, settings: Mapping[str, Any], say: Callable[[str], None]) -> str | None:
    try:
        known = json.loads((directory / RUN_FILE).read_text())
        run, before = known["run"], dict(known["settings"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    wanted = json.loads(json.dumps(settings))
    changed = [name for name in sorted(before.keys() | wanted.keys()) if before.get(name) != wanted.get(name)]
    if changed:
        words = "; ".join(f"{name} was {before.get(name)} and is {wanted.get(name)}" for name in changed[:3])
        say(f"Not going on with the unfinished run in {directory}, which had other settings: {words}")
        return None
    return run if isinstance(run, str) else None


class Checkpoints:
    """Writes checkpoints from a thread of its own, one at a time, and keeps the newest and the best of its run."""

    def __init__(self, output: Output, form: Form, *, keep: int, say: Callable[[str], None]) -> None:
        self.output, self.form, self.keep, self.say = output, form, keep, say
        self.thread: threading.Thread | None = None
        self.mine = [path for path in reversed(output.checkpoints()) if _is_of(path, output.run)]

    def write(self, values: list[Array], state: RunState, name: tuple[int, int]) -> None:
        """Writes values and state as the checkpoint of `name`, an epoch and a step in it, while training goes on."""
        self.wait()
        path = self.output.checkpoint(*name)
        state = copy.deepcopy(state)  # training goes on with its own
        self.thread = threading.Thread(target=self._write, args=(path, values, state), name="checkpoint")
        self.thread.start()

    def wait(self) -> None:
        """Until what was begun is on the disk."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def _write(self, path: Path, values: list[Array], state: RunState) -> None:
        try:
            with whole(path) as partial:
                partial.write_bytes(self.form.content(values, self.output.run, state))
            self.mine = [*(known for known in self.mine if known != path), path]
            self._forget(state)
        except OSError as error:
            # The next one may find room again; what is on the disk stays whole.
            self.say(f"Training goes on without the checkpoint {path}: {error.strerror or error}")

    def _forget(self, state: RunState) -> None:
        kept = set(self.mine[-self.keep :])
        if state.best_epoch:
            kept.add(self.output.checkpoint(state.best_epoch))
        for path in self.mine:
            if path not in kept:
                path.unlink(missing_ok=True)
        self.mine = [path for path in self.mine if path in kept]


def _is_of(path: Path, run: str) -> bool:
    try:
        return described(path).run == run
    except UNREADABLE:
        return False
