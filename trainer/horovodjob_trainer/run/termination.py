"""SIGTERM: a training run first writes a checkpoint; a run that waits for ranks that have ended exits at once."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import NoReturn, TypeVar

from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section

T = TypeVar("T")

TERMINATED = 128 + signal.SIGTERM
GRACE_SECONDS = 25.0  # the default grace period of a pod is 30 seconds
# A step that takes this much longer than the previous steps waits for a rank that has ended.
STALLED_STEPS, STALLED_SECONDS = 10, 5.0
BLOCKED_SECONDS = 3.0  # without progress, after which the ranks ask each other whether one waits for its data
ANSWER_SECONDS = 5.0  # for the answers, on a busy machine


class LoopStage(IntEnum):
    """Where the main thread of a training is."""

    ELSEWHERE, BATCH, STEP = range(3)


class Termination:
    """Handles SIGTERM in a separate thread, even while the main thread is blocked.

    `last_message` returns what to print if the run ends before the main thread has ended it. `save_blocked` writes the
    last checkpoint without the main thread, if that waits for data, and returns when it has done so.
    """

    def __init__(self) -> None:
        self.requested = False
        self.grace_seconds = GRACE_SECONDS
        self.last_message: Callable[[], str] | None = None
        self.save_blocked: Callable[[], None] | None = None
        self._stage, self._next_step = LoopStage.ELSEWHERE, threading.Lock()
        self._is_saved = False
        self._is_training = self._is_left = False
        self._expects_pause = False
        self._last_heartbeat = time.monotonic()
        self._step_seconds = 0.0

    def listen(self) -> None:
        """Start the thread. Call it before any other thread exists: threads inherit the blocked signal."""
        # The handler is never called, because the signal is blocked. Without a handler, the start script of a worker
        # concludes that this rank has nothing to save, and mpirun kills it within a second.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=self._listen, name="sigterm", daemon=True).start()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle SIGTERM within this context, in a process that already has other threads.

        The context is a training. After it, the signal has its earlier effect. Python allows signal handlers only in
        the main thread, so another thread ignores this.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        handler = signal.signal(signal.SIGTERM, lambda *_: None)
        signal.siginterrupt(signal.SIGTERM, False)  # libraries do not expect interrupted system calls
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        thread = threading.Thread(target=self._read_signals, args=(reader,), name="sigterm", daemon=True)
        self.set_training(True)
        thread.start()
        try:
            yield
        finally:
            self._is_left = True
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGTERM, handler if handler is not None else signal.SIG_DFL)
            os.close(writer)
            thread.join()

    def set_training(self, active: bool) -> None:
        """While training is active, SIGTERM only requests its end."""
        self._is_training = active
        self.expect_pause()

    def expect_pause(self) -> None:
        """Use the whole grace period until the next heartbeat: the next step or batch traces and compiles a graph."""
        self._expects_pause, self._last_heartbeat = True, time.monotonic()

    def begin_last_write(self) -> float:
        """Use the whole grace period for the last checkpoint. Returns its end, in the time of `time.monotonic`."""
        self.expect_pause()
        return time.monotonic() + self.grace_seconds

    def wait_for(self, batch: Callable[[], T]) -> T:
        """The batch of the next step. The step lasts until the next heartbeat."""
        self._stage = LoopStage.BATCH
        try:
            with ACTIVITY.section(Section.INPUT):
                return batch()
        finally:
            with self._next_step:
                self._stage = LoopStage.STEP

    @contextmanager
    def held(self) -> Iterator[LoopStage]:
        """The stage of the main thread. Within this context, it does not begin the step whose batch it waits for."""
        with self._next_step:
            yield self._stage

    def heartbeat(self) -> None:
        """Record that the training makes progress: call it after each step and each batch of an evaluation."""
        self._stage = LoopStage.ELSEWHERE
        now = time.monotonic()
        seconds = now - self._last_heartbeat
        if not self._expects_pause:
            self._step_seconds = 0.9 * self._step_seconds + 0.1 * seconds if self._step_seconds else seconds
        self._expects_pause, self._last_heartbeat = False, now

    def _listen(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._wait_for_end()

    def _read_signals(self, reader: int) -> None:
        """Wait for SIGTERM among the numbers of signals that Python writes, until the context has ended."""
        with open(reader, "rb", buffering=0) as numbers:
            while received := numbers.read(1):
                if received[0] == signal.SIGTERM:
                    self._wait_for_end()
                    return

    def _wait_for_end(self) -> None:
        self.requested = True
        start = time.monotonic()
        saving = threading.Thread(target=self._save, name="last checkpoint", daemon=True)
        while (
            self._is_training
            and not self._is_left
            and not self._is_saved
            and time.monotonic() - start < self.grace_seconds
            and not self._is_stalled(start)
        ):
            is_blocked = time.monotonic() - max(self._last_heartbeat, start) > BLOCKED_SECONDS
            if is_blocked and self.save_blocked is not None and saving.ident is None:
                saving.start()
            time.sleep(0.05)
        if self._is_left:
            return
        if self._is_training and self.last_message is not None:
            print(self.last_message(), flush=True)
        exit_process(TERMINATED)

    def _save(self) -> None:
        if self.save_blocked is not None:
            with suppress(Exception):  # another rank has ended
                self.save_blocked()
                self._is_saved = True

    def _is_stalled(self, start: float) -> bool:
        if self._expects_pause or not self._step_seconds or self._stage is LoopStage.BATCH:
            return False
        answers = ANSWER_SECONDS if self.save_blocked is not None else 0.0
        allowed = STALLED_SECONDS + STALLED_STEPS * self._step_seconds + answers
        return time.monotonic() - max(self._last_heartbeat, start) > allowed


def exit_process(code: int) -> NoReturn:
    """End this process. After a failure it ends at once, because an orderly exit would wait for the other ranks."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code:
        os._exit(code)
    sys.exit(code)
