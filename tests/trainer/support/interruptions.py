"""Interruptions of a training program by itself, at a place that the test names. Programs of the tests import it.

INTERRUPT contains a signal, a pattern of places and a number: `SIGKILL replace checkpoint-.* 2` is the second time
that a rank, 0 unless INTERRUPT_RANK is another, is about to rename a complete checkpoint. With HOLD, each rank waits
in its tenth step for the file that releases it.
"""

import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARED = {"PYTHONPATH": str(Path(__file__).parents[2])}
"""The variables with which a program can import this module."""
HELD_STEP = 10
_visits = {"interrupt": 0, "hold": 0}


def killed_at(start: Callable[..., Any], *places: str) -> Any:
    """The end of a run whose starts before are killed at these places, of which each is later in a run than the one
    before. `start` starts the program with these variables.
    """
    for place in places:
        killed = start(INTERRUPT=f"SIGKILL {place}")
        assert killed.code == 128 + signal.SIGKILL, (place, killed.stdout, killed.stderr)
    return start()


def reach(place: str) -> None:
    """Interrupt the process if the test asks for it at this place."""
    named = re.fullmatch(r"(SIG\w+) (.*) (\d+)", os.environ.get("INTERRUPT", ""))
    is_rank = os.environ.get("INTERRUPT_RANK", "0") == os.environ.get("OMPI_COMM_WORLD_RANK")
    if named is None or not is_rank or not re.fullmatch(named[2], place):
        return
    _visits["interrupt"] += 1
    if _visits["interrupt"] == int(named[3]):
        if file := os.environ.get("INTERRUPT_FILE"):
            Path(file).touch()
        os.kill(os.getpid(), signal.Signals[named[1]])


def hold(directory: Path) -> None:
    """From the tenth step on, wait until the test releases the run."""
    name = os.environ.get("HOLD")
    _visits["hold"] += 1
    if name and _visits["hold"] >= HELD_STEP:
        (directory / f"{name}-holds").touch()
        while not (directory / f"{name}-released").exists():
            time.sleep(0.05)


def limit_files() -> None:
    """Let each write that makes a file larger than MAX_FILE_BYTES fail, as on a full disk."""
    if size := int(os.environ.get("MAX_FILE_BYTES", 0)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def watch_files() -> None:
    """Reach `write` in each array of a checkpoint, and `replace NAME` and `replaced NAME` around a rename."""
    import h5py

    rename, assign = os.replace, h5py.Group.__setitem__

    def replace(source: Any, target: Any) -> None:
        reach(f"replace {Path(target).name}")
        rename(source, target)
        reach(f"replaced {Path(target).name}")

    def write(group: Any, name: Any, value: Any) -> None:
        assign(group, name, value)
        if threading.current_thread().name == "checkpoint":
            reach("write")

    os.replace, h5py.Group.__setitem__ = replace, write  # type: ignore[assignment]
