"""Writes checkpoints in a separate thread and deletes old ones."""

import copy
import threading
from collections.abc import Callable
from pathlib import Path

from horovodjob_trainer.atomic_file import atomic_write
from horovodjob_trainer.checkpoint.layout import READ_ERRORS, Array, CheckpointLayout, read_description
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState


class CheckpointWriter:
    """Writes one checkpoint at a time in a separate thread. Keeps the newest and the best checkpoints of its run."""

    def __init__(
        self, output: OutputDirectory, layout: CheckpointLayout, *, keep: int, log: Callable[[str], None]
    ) -> None:
        self.output, self.layout, self.keep, self.log = output, layout, keep, log
        self.thread: threading.Thread | None = None
        self.own_paths = [path for path in reversed(output.checkpoints()) if _belongs_to(path, output.run)]

    def write(self, values: list[Array], state: RunState, name: tuple[int, int]) -> None:
        """Start to write the checkpoint `name`, an epoch and a step in it, while training continues."""
        self.wait()
        path = self.output.checkpoint_path(*name)
        state = copy.deepcopy(state)  # training changes the original
        self.thread = threading.Thread(target=self._write, args=(path, values, state), name="checkpoint")
        self.thread.start()

    def wait(self) -> None:
        """Wait until the current checkpoint is on the disk."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def _write(self, path: Path, values: list[Array], state: RunState) -> None:
        try:
            with atomic_write(path) as partial:
                partial.write_bytes(self.layout.serialize(values, self.output.run, state))
            self.own_paths = [*(own for own in self.own_paths if own != path), path]
            self._delete_old_checkpoints(state)
        except OSError as error:
            # There may be space for the next checkpoint. Earlier checkpoints stay intact.
            self.log(f"Training continues without the checkpoint {path}: {error.strerror or error}")

    def _delete_old_checkpoints(self, state: RunState) -> None:
        kept = set(self.own_paths[-self.keep :])
        if state.best_epoch:
            kept.add(self.output.checkpoint_path(state.best_epoch))
        for path in self.own_paths:
            if path not in kept:
                path.unlink(missing_ok=True)
        self.own_paths = [path for path in self.own_paths if path in kept]


def _belongs_to(path: Path, run: str) -> bool:
    try:
        return read_description(path).run == run
    except READ_ERRORS:
        return False
