"""Messages for ranks with different numbers of steps."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence

from horovodjob_trainer.hvd.exchange import exchange

DEFAULT_WAIT_SECONDS = 60
REMEDY = "every step needs all ranks, so call fit with the same steps_per_epoch on all ranks"


@contextlib.contextmanager
def report_wait(text: str) -> Iterator[None]:
    """Print "rank N" and the text if the context lasts longer than the stall check of Horovod tolerates."""
    seconds = int(os.environ.get("HOROVOD_STALL_CHECK_TIME_SECONDS") or DEFAULT_WAIT_SECONDS)

    def report() -> None:
        message = f"rank {exchange.rank()} {text}, since {seconds} s; if they have more steps: {REMEDY}"
        print(message, file=sys.stderr, flush=True)

    timer = threading.Timer(seconds, report)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def step_difference(steps: Sequence[int | None]) -> str:
    """The first two ranks with different numbers of steps; empty if there are none. None is an unknown number."""
    known = [(rank, count) for rank, count in enumerate(steps) if count is not None]
    for rank, count in known[1:]:
        first, first_count = known[0]
        if count != first_count:
            return f"rank {first} has {first_count} steps per epoch and rank {rank} has {count}"
    return ""


def listed(ranks: Sequence[int]) -> str:
    """The ranks, for messages."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
