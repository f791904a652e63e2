"""SIGTERM: a run that trains writes a checkpoint first; one that waits for ranks that are gone ends at once."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

TERMINATED = 128 + signal.SIGTERM
GRACE_SECONDS = 25.0  # Kubernetes gives a pod 30
# A step that takes this much longer than the ones before waits for a rank that is gone.
STALLED_STEPS, STALLED_SECONDS = 10, 5.0


class Termination:
    """Hears SIGTERM in a thread of its own, whatever the main thread waits for."""

    def __init__(self) -> None:
        self.requested = False
        self._training = False
        self._beat = time.monotonic()
        self._pace = 0.0

    def listen(self) -> None:
        """To be called before any other thread exists: they leave the blocked signal to the one that waits for it."""
        # Never called, as the signal is blocked: without a handler a worker's start script takes this rank for one that
        # has nothing to save, and mpirun kills it within a second.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=self._listen, name="sigterm", daemon=True).start()

    def training(self, active: bool) -> None:
        """While training is active a SIGTERM only asks for the end."""
        self._training, self._beat = active, time.monotonic()

    def beat(self) -> None:
        """A sign of life of the training, each step and each batch of a validation."""
        now = time.monotonic()
        self._pace = 0.9 * self._pace + 0.1 * (now - self._beat)
        self._beat = now

    def _listen(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self.requested = True
        heard = time.monotonic()
        while self._training and time.monotonic() - heard < GRACE_SECONDS:
            allowed = STALLED_SECONDS + STALLED_STEPS * self._pace
            if time.monotonic() - max(self._beat, heard) > allowed:
                break
            time.sleep(0.05)
        leave(TERMINATED)


def leave(code: int) -> NoReturn:
    """Ends this process, at once if it failed: an orderly end would wait for the other ranks."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code:
        os._exit(code)
    sys.exit(code)
