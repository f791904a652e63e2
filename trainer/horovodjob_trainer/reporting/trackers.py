"""Experiment trackers, each in a process of its own: a tracker that fails or hangs can neither delay nor end a run."""

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from horovodjob_trainer.reporting import tracker_process

WAIT_SECONDS = tracker_process.CLOSE_SECONDS + 5


class Tracker:
    """Sends metrics to a process that gives them to MLflow or Weights & Biases.

    `kind` is a key of `tracker_process.CONNECTORS`. `target` is the experiment or project. Attempts with the same `run`
    continue one run of the tracker. `settings` are shown with the run.
    """

    def __init__(self, kind: str, target: str, *, run: str, name: str, settings: Mapping[str, Any]) -> None:
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        program = [sys.executable, "-m", tracker_process.__name__]
        # Without its own process group, a signal for the rank would reach the processes of the tracker too.
        self.process = subprocess.Popen(
            program, stdin=other.fileno(), stderr=subprocess.DEVNULL, start_new_session=True
        )
        other.close()
        self._send({"kind": kind, "target": target, "run": run, "name": name, "settings": settings})

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values that are finite numbers."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._send({"time": time.time(), "step": step, "values": finite})

    def close(self, *, done: bool) -> None:
        """End the run of the tracker as complete or as interrupted, within a few seconds."""
        self._send({"done": done})
        self.socket.close()
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _send(self, message: Mapping[str, Any]) -> None:
        with suppress(OSError):  # the process has ended and said why, or its machine has no time for it
            self.socket.send(json.dumps(message).encode())


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a tracker shows. A URL can contain a signature, so it is not among them."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str | int | float) and "//" not in str(value) and not name.endswith("url")
    }


def default_name(environment: Mapping[str, str] = os.environ) -> str:
    """The name of the job, else an empty text, with which the tracker chooses a name."""
    return environment.get("HOROVODJOB_NAME", "")
