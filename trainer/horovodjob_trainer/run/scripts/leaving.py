"""A rank that leaves a run before its end: the other ranks leave at the same place, or all of them end."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.errors import JobError
from horovodjob_trainer.hvd.uneven_steps import report_wait
from horovodjob_trainer.launch import hostname

T = TypeVar("T")
ERROR_SECONDS, BREAK_SECONDS = 15.0, 600.0


def check_on_all_ranks(action: Callable[[], T]) -> T:
    """The result of the action. If it raises an exception on a rank, the other ranks raise JobError with its text."""
    value, own = None, None
    try:
        value = action()
    except Exception as error:
        own = error
    problems = hvd.allgather_object(own and f"{type(own).__name__}: {own}", name="run_check")
    if own is not None:
        raise own
    for rank, problem in enumerate(problems):
        if problem is not None:
            raise JobError(f"rank {rank}: {problem}")
    return value  # type: ignore[return-value]


@contextmanager
def common_end(place: Callable[[], str]) -> Iterator[None]:
    """End all ranks if an exception, or a `break` out of a loop, leaves this context on some of them only.

    A JobError is that of all ranks. `place` is the step of this rank, for the message.
    """
    try:
        yield
    except JobError:
        raise
    except GeneratorExit:
        if not sys.is_finalizing():
            _leave(f"{place()}, which is not the last one", _break_seconds())
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        _leave(f"{place()}: {type(error).__name__}: {text}", ERROR_SECONDS)
        raise


def _leave(reason: str, seconds: float) -> None:
    """Wait for the other ranks to leave, too. Otherwise they would wait for this rank without end."""
    if not hvd.is_initialized() or hvd.size() == 1:
        return
    rank = hvd.rank()

    def meet() -> None:
        with suppress(Exception):  # another rank has ended
            # Horovod matches eager operations of one kind, whatever their names are. Nothing else of a run is of this.
            hvd.alltoall(tf.zeros([hvd.size()]), name="run_left")

    thread = threading.Thread(target=meet, name="leave", daemon=True)
    with report_wait(f"has left the run in {reason}, and waits for the other ranks to leave it"):
        thread.start()
        thread.join(seconds)
    if thread.is_alive():
        print(f"rank {rank} on {hostname()} has left the run in {reason}; the other ranks end, because every step "
              "needs all ranks", file=sys.stderr, flush=True)  # fmt: skip
        hvd.shutdown()


def _break_seconds() -> float:
    # Another rank may save a model before its break.
    return float(os.environ.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") or 0) or BREAK_SECONDS
