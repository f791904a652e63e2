"""Writes checkpoints in a separate thread, again after an error, and deletes old ones."""

import errno
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovodjob_trainer.checkpoint.checkpoint_file import (
    Array,
    CheckpointLayout,
    NonFiniteValues,
    check_finite,
    copies,
    snapshot,
)
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError

RETRY_SECONDS, LAST_RETRY_SECONDS = 30.0, 1.0
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """When to write and to delete checkpoints, and how long to continue while no write succeeds.

    `keep` is the number of newest checkpoints to keep. A checkpoint is due `interval_seconds` after the last one, and
    after each `every_steps` steps.
    """

    keep: int
    interval_seconds: float
    failure_seconds: float
    every_steps: int | None = None


class CheckpointWriter:
    """Writes one checkpoint at a time in a separate thread. Keeps the newest and the best checkpoints of its run."""

    def __init__(
        self, output: OutputDirectory, layout: CheckpointLayout, policy: WritePolicy, log: Callable[[str], None]
    ) -> None:
        self.output, self.layout, self.policy, self.log = output, layout, policy, log
        self._names = output.program
        self._problem: str | None = None
        own = output.own_checkpoints()
        self._own_paths = [path for _, path in own]
        self._newest_step = own[-1][0].step if own else 0
        self._last_success = time.monotonic()
        self._failing_since: float | None = None
        self._failure = ""  # of the last write
        self._next_try = 0.0
        self._is_finite = True
        self._thread: threading.Thread | None = None
        self._start, self._path = 0.0, output.directory  # of the current write
        self._is_skipped = False

    @property
    def problem(self) -> str | None:
        """The reason why the run cannot continue."""
        if self._problem is None and self.is_writing and self._write_seconds >= self.policy.failure_seconds:
            return (
                f"{self._pending_text()}, so the run ends ({self._names.failure_seconds}); repair {self._names.volume}"
            )
        return self._problem

    @property
    def is_due(self) -> bool:
        """Whether to write a checkpoint now: after the interval, again after an error, or for one that was skipped."""
        if self.is_writing:
            return False
        if self._failing_since is not None:
            return time.monotonic() >= self._next_try
        return self._is_skipped or time.monotonic() >= self._last_success + self.policy.interval_seconds

    @property
    def is_writing(self) -> bool:
        """Whether a write has not ended, which can take as long as a share that does not respond."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, variables: Sequence[Any], state: RunState, name: tuple[int, int]) -> None:
        """Start to write the checkpoint `name`, an epoch and a step in it, while training continues.

        The ranks wait a while for the previous write, so that there is only one snapshot. If it does not end, the
        checkpoint is skipped.
        """
        self._join(0 if self._is_skipped else min(RETRY_SECONDS, self.policy.failure_seconds / 3))
        path = self.output.checkpoint_path(*name)
        if self.is_writing:
            if not self._is_skipped:
                self.log(f"Training continues without the checkpoint {path}: {self._pending_text()}")
            self._is_skipped = True
            return
        self._is_skipped, self._start, self._path = False, time.monotonic(), path
        arguments = (path, variables, snapshot(variables), state.snapshot())  # training changes the originals
        # A daemon, because a share that does not respond would block the exit of the process.
        self._thread = threading.Thread(target=self._write, args=arguments, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self, deadline: float = math.inf) -> None:
        """Wait until the current checkpoint is on the disk, has failed, or is not written for too long."""
        while self.is_writing and self.problem is None and (left := deadline - time.monotonic()) > 0:
            self._join(min(left, max(self.policy.failure_seconds - self._write_seconds, 0.01)))

    def _join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(min(max(seconds, 0), threading.TIMEOUT_MAX))

    @property
    def _write_seconds(self) -> float:
        return time.monotonic() - self._start

    def _pending_text(self) -> str:
        seconds = f"{self._write_seconds:.0f} s"
        return f"the write of {self._path} has not ended for {seconds}, because its volume is slow or does not respond"

    def finish(
        self, variables: Sequence[Any], state: RunState, name: tuple[int, int], *, deadline: float = math.inf
    ) -> None:
        """Write the checkpoint of the last step unless it exists, with new attempts until the run cannot continue.

        At the deadline, the attempts end without a problem.
        """
        self.wait(deadline)
        while self._newest_step != state.step and self.problem is None and not self.is_writing:
            self.write(variables, state, name)
            self.wait(deadline)
            is_hopeless = not self._is_finite or time.monotonic() > deadline - LAST_RETRY_SECONDS
            if self.is_writing or self._failing_since is None or is_hopeless:
                break
            time.sleep(LAST_RETRY_SECONDS)

    def has_written(self, step: int) -> bool:
        """Whether the newest checkpoint is that of this step."""
        return self._newest_step == step

    def resume_point(self, step: int) -> str:
        """Where the next attempt continues if this one ends after this step, for a message."""
        if self.has_written(step):
            return f"stopped after step {step}, from which the next attempt continues"
        newest = f"continues after step {self._newest_step}" if self._newest_step else "starts from the beginning"
        reason = self.problem or (self._pending_text() if self.is_writing else self._failure)
        problem = f" ({reason})" if reason else ""
        return f"stopped after step {step}, of which there is no checkpoint: the next attempt {newest}{problem}"

    def _write(self, path: Path, variables: Sequence[Any], tensors: list[Any], state: RunState) -> None:
        self._is_finite = True
        try:
            values = copies(tensors)
            tensors.clear()  # frees the memory of the device
            check_finite(variables, values)
            self._write_file(path, values, state)
            self._record_success(path, state)
            self._delete_old_checkpoints(state)
        except OutputError as error:
            self._problem = str(error)
        except NonFiniteValues as error:  # earlier checkpoints stay the newest
            self._is_finite = False
            self._record_failure(path, error)
        except Exception as error:  # HDF5 raises RuntimeError for some errors of the disk
            self._record_failure(path, error)

    def _write_file(self, path: Path, values: list[Array], state: RunState) -> None:
        try:
            with self.output.write(path) as partial:
                self.layout.write(partial, values, self.output.run, state)
        except OSError as error:
            if error.errno not in FULL or not self.make_room(state):
                raise
            self._write_file(path, values, state)

    def make_room(self, state: RunState) -> bool:
        """Delete the oldest checkpoint, but neither the newest nor the best. Returns whether there was one."""
        best = self.output.checkpoint_path(state.best_epoch) if state.best_epoch else None
        for path in self._own_paths[:-1]:
            if path != best:
                self._own_paths.remove(path)
                path.unlink(missing_ok=True)
                self.log(f"Deleted the old checkpoint {path}, because the volume is full")
                return True
        return False

    def _record_success(self, path: Path, state: RunState) -> None:
        if self._failing_since is not None:
            self.log(f"Wrote the checkpoint {path}")
        self._last_success, self._failing_since, self._newest_step = time.monotonic(), None, state.step
        self._failure = ""
        self._own_paths = [*(own for own in self._own_paths if own != path), path]

    def _record_failure(self, path: Path, error: Exception) -> None:
        now, limit = time.monotonic(), self.policy.failure_seconds
        problem = f"cannot write the checkpoint {path}: {_reason(error)}"
        space = f"free space or repair {self._names.volume}"
        remedy = space if self._is_finite else f"try a lower {self._names.learning_rate}"
        self._failing_since, self._failure = self._failing_since or now, problem
        delay = min(RETRY_SECONDS, limit / 3)
        self._next_try = now + delay
        if now - self._failing_since < limit:
            self.log(f"Training continues, but the trainer {problem}; it tries again in {delay:.0f} s")
        else:
            self._problem = (
                f"{problem}; no write has succeeded for {now - self._failing_since:.0f} s, so the run ends "
                f"({self._names.failure_seconds}); {remedy}"
            )

    def _delete_old_checkpoints(self, state: RunState) -> None:
        kept = set(self._own_paths[-self.policy.keep :])
        if state.best_epoch:
            kept.add(self.output.checkpoint_path(state.best_epoch))
        try:
            for path in self._own_paths:
                if path not in kept:
                    path.unlink(missing_ok=True)
        except OSError as error:
            self.log(f"Cannot delete the old checkpoint {path}: {error.strerror or error}")
        self._own_paths = [path for path in self._own_paths if path in kept]


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    name = "" if isinstance(error, NonFiniteValues) else f"{type(error).__name__}: "
    return " ".join((reason or f"{name}{error}").split())[:200]
