"""How the end-to-end tests reach the cluster, and how long they wait."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from support import api_client

T = TypeVar("T")

JOBS = "/apis/horovodjob.dev/v1beta1"
MERGE_PATCH = "application/merge-patch+json"
# A limit for failures only: no test depends on its length, because a busy machine is slow.
DEADLINE_SECONDS = 900.0


def wait_for(what: str, condition: Callable[[], T | None], seconds: float = DEADLINE_SECONDS) -> T:
    """The first true result of `condition`. Raises AssertionError after the deadline."""
    return api_client.wait_for(what, condition, max(seconds, DEADLINE_SECONDS))


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl, for commands that a user types: apply, exec."""

    program: str
    kubeconfig: Path

    def __call__(self, *arguments: str, given: str | None = None, seconds: float = DEADLINE_SECONDS) -> str:
        """Its output. Raises AssertionError with its error output."""
        done = subprocess.run(
            [self.program, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=max(seconds, DEADLINE_SECONDS),
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if done.returncode:
            raise AssertionError(
                f"kubectl {' '.join(arguments[:6])} ended with {done.returncode}: {done.stderr[-2000:]}"
            )
        return done.stdout
