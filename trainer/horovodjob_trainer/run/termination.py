"""SIGTERM: a training run first writes a checkpoint; a run that waits for ranks that have ended exits at once."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

TERMINATED = 128 + signal.SIGTERM
GRACE_SECONDS = 25.0  # the default grace period of a pod is 30 seconds
# A step that takes this much longer than the previous steps waits for a rank that has ended.
STALLED_STEPS, STALLED_SECONDS = 10, 5.0


class Termination:
    """Handles SIGTERM in a separate thread, even while the main thread is blocked."""

    def __init__(self) -> None:
        self.requested = False
        self._is_training = False
        self._last_heartbeat = time.monotonic()
        self._step_seconds = 0.0

    def listen(self) -> None:
        """Start the thread. Call it before any other thread exists: threads inherit the blocked signal."""
        # The handler is never called, because the signal is blocked. Without a handler, the start script of a worker
        # concludes that this rank has nothing to save, and mpirun kills it within a second.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=self._listen, name="sigterm", daemon=True).start()

    def set_training(self, active: bool) -> None:
        """While training is active, SIGTERM only requests its end."""
        self._is_training, self._last_heartbeat = active, time.monotonic()

    def heartbeat(self) -> None:
        """Record that the training makes progress: call it after each step and each batch of an evaluation."""
        now = time.monotonic()
        self._step_seconds = 0.9 * self._step_seconds + 0.1 * (now - self._last_heartbeat)
        self._last_heartbeat = now

    def _listen(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self.requested = True
        start = time.monotonic()
        while self._is_training and time.monotonic() - start < GRACE_SECONDS:
            allowed = STALLED_SECONDS + STALLED_STEPS * self._step_seconds
            if time.monotonic() - max(self._last_heartbeat, start) > allowed:
                break
            time.sleep(0.05)
        exit_process(TERMINATED)


def exit_process(code: int) -> NoReturn:
    """End this process. After a failure it ends at once, because an orderly exit would wait for the other ranks."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code:
        os._exit(code)
    sys.exit(code)
