"""A TensorBoard profile of some steps of rank 0."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf


class ProfiledSteps:
    """Runs the steps of a loop and writes a profile of the steps `first` to `last`, counted from 1.

    `before` is the number of steps of the run before this loop. A profile that cannot be written results in a log line
    and never ends the run.
    """

    def __init__(
        self,
        run_step: Callable[[Any], Any],
        steps: tuple[int, int],
        directory: Path,
        *,
        before: int,
        log: Callable[[str], None],
    ) -> None:
        self.run_step, self.directory, self.log = run_step, directory, log
        self.first, self.last = steps
        self.before = self.step = before
        self.is_active = self.is_done = False

    def __call__(self, batch: Any) -> Any:
        self.step += 1
        if self.step == self.first:
            self._attempt(lambda: tf.profiler.experimental.start(str(self.directory)))
            self.is_active = not self.is_done
        logs = self.run_step(batch)
        if self.is_active and self.step == self.last:
            for value in tf.nest.flatten(logs):
                value.numpy()  # a GPU computes the step after the call
            self._write()
        return logs

    def close(self) -> None:
        """Write the profile of an attempt that ends within the steps, and log if it has not run the first of them."""
        if self.is_active:
            self._write()
        elif not self.is_done:
            self.log(f"No profile: this attempt ran the steps {self.before + 1} to {self.step}, and --profile-steps "
                     f"begins at step {self.first}")  # fmt: skip

    def _write(self) -> None:
        self.is_active = False
        self._attempt(tf.profiler.experimental.stop)
        if not self.is_done:
            self.is_done = True
            self.log(f"The profile of the steps {self.first} to {self.step} is in {self.directory}")

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (tf.errors.OpError, OSError) as error:
            self.is_done = True
            reason = " ".join(str(error).split())
            with suppress(tf.errors.OpError, OSError):
                tf.profiler.experimental.stop(save=False)
            self.log(f"Training continues without a profile in {self.directory}: {reason[:200]}")
