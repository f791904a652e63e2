"""What the workers of a parallel run share: preparations that run once, and locks."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Once:
    """Preparations that the first worker runs, and the others wait for."""

    folder: Path | None
    """Shared by all workers of a run; None with a single process."""

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        """The result of `make`, which must be JSON, from the first worker."""
        if not self.folder:
            return make()
        result = self.folder / f"{name}.json"
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                text = json.dumps(make())
                result.write_text(text)
            return json.loads(result.read_text())

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Holds the lock of this name, which one worker can hold at a time."""
        if not self.folder:
            yield
            return
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def once(config: pytest.Config, temporary: pytest.TempPathFactory) -> Once:
    """The preparations of this run. With pytest-xdist, the folders of the workers are in one folder of the run."""
    return Once(temporary.getbasetemp().parent if is_worker(config) else None)


def is_worker(config: pytest.Config) -> bool:
    """Whether pytest-xdist runs other tests beside those of this process."""
    return hasattr(config, "workerinput")
