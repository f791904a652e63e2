"""Progress of a command on the terminal, and waiting for conditions with a deadline."""

import sys
import time
from collections.abc import Callable

from localcluster.errors import ClusterError


class Progress:
    """Prints each step with the seconds since the start, on standard error: standard output is for results."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def step(self, text: str) -> None:
        """Print one step."""
        print(f"{time.monotonic() - self.started:7.1f}s  {text}", file=sys.stderr, flush=True)


def wait_until(
    what: str,
    condition: Callable[[], bool],
    *,
    seconds: float,
    interval: float = 0.05,
    explain: Callable[[], str] = lambda: "",
) -> None:
    """Return as soon as `condition` is true. Raises ClusterError after `seconds`, with what `explain` returns.

    `explain` is called after each check; it may raise ClusterError to end the wait early.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        reason = explain()
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} took more than {seconds:.0f} s{': ' if reason else ''}{reason}")
        time.sleep(interval)
