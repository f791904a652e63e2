"""The heartbeat of the run that owns an output directory: a file that it writes again and again.

It is a file of its own, because a run that no longer owns the directory must not replace the file of the owner.
"""

import threading
from contextlib import suppress
from pathlib import Path

from horovodjob_trainer.atomic_file import PARTIAL_PREFIX

INTERVAL_SECONDS = 20.0
FRESH_SECONDS = 120.0
STOP_SECONDS = 2.0
PREFIX = ".horovodjob-heartbeat-"


class Heartbeat:
    """Writes the heartbeat of the start with this token in a thread, until `stop`."""

    def __init__(self, directory: Path, token: str) -> None:
        self.path = _path(directory, token)
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> "Heartbeat":
        """Write the first heartbeat and start the thread. Deletes the heartbeats of earlier owners."""
        for path in self.path.parent.glob(f"{PREFIX}*"):
            with suppress(OSError):
                path.unlink()
        self._write()
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the heartbeat: the directory has no active run. Does not wait for a share that does not respond."""
        self._stops.set()
        self._thread.join(STOP_SECONDS)

    def _beat(self) -> None:
        while not self._stops.wait(INTERVAL_SECONDS):
            self._write()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        with suppress(OSError):  # a full disk is the concern of the checkpoints
            self.path.write_text("active\n")


def heartbeat_age(directory: Path, token: str) -> float | None:
    """Seconds since the last heartbeat of this start, None without one. Raises OSError if nothing can be written."""
    try:
        last = _path(directory, token).stat().st_mtime
    except FileNotFoundError:
        return None
    probe = directory / f"{PARTIAL_PREFIX}{token}-time"
    probe.write_bytes(b"")
    now = probe.stat().st_mtime  # by the clock of the file server, as that of the heartbeat
    probe.unlink(missing_ok=True)
    return max(now - last, 0.0)


def _path(directory: Path, token: str) -> Path:
    return directory / f"{PREFIX}{token}"
