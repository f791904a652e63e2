"""A rank that leaves the common steps: the other ranks leave at the same place, or all of them end."""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import tensorflow as tf

from horovodjob_trainer.errors import JobError
from horovodjob_trainer.hvd.exchange import exchange, is_concurrent
from horovodjob_trainer.hvd.presence import EXIT_SECONDS, State, Verdict, current_presence, present
from horovodjob_trainer.hvd.uneven_steps import REMEDY, listed, report_wait
from horovodjob_trainer.launch import hostname

ERROR_SECONDS, BREAK_SECONDS = 15.0, 600.0
SHUT_DOWN = "Horovod has been shut down"  # in the errors of a rank that waits when another one ends


@contextmanager
def named_place(place: Callable[[], str]) -> Iterator[None]:
    """Name the place of this rank, and the ranks that have left, in the error that it has because another one ended."""
    try:
        yield
    except Exception as error:
        if SHUT_DOWN not in str(error):
            raise
        presence = current_presence()
        left = presence.left_ranks(EXIT_SECONDS) if presence is not None else []
        cause = f", because it failed or because it had fewer steps. In the second case: {REMEDY}"
        if left:
            cause = f": {listed(left)} left the training, and every step needs all ranks"
        raise RuntimeError(f"rank {exchange.rank()} was in {place()} when another rank ended{cause}") from error


@contextmanager
def common_end(place: Callable[[], str]) -> Iterator[None]:
    """End all ranks if an exception, or a `break` out of a loop, leaves this context on some of them only.

    A JobError is that of all ranks. `place` is the step of this rank, for the message.
    """
    with present():
        try:
            with named_place(place):
                yield
        except JobError:
            raise
        except GeneratorExit:
            if not sys.is_finalizing():
                leave(f"{place()}, which is not the last one", break_seconds())
            raise
        except BaseException as error:  # SystemExit and KeyboardInterrupt, too
            text = " ".join(str(error).split())[:500]
            leave(f"{place()}: {type(error).__name__}: {text}", ERROR_SECONDS, error)
            raise


def leave(reason: str, seconds: float, error: BaseException | None = None) -> bool:
    """Wait for the other ranks to leave, too, and return whether they do. If not, they end: they would wait forever."""
    if not exchange.is_initialized() or exchange.size() == 1:
        return True
    sentence = f"rank {exchange.rank()} on {hostname()} has left the run in {reason}"
    if error is not None and not is_concurrent:  # MPI ends this process when another rank is in another operation
        traceback.print_exception(error)
        print(sentence, file=sys.stderr, flush=True)

    with report_wait(f"has left the run in {reason}, and waits for the other ranks to leave it"):
        if _others_leave(seconds):
            return True
    presence = current_presence()
    if presence is not None and presence.is_known and exchange.rank() not in presence.left:
        if error is None:  # an error has its own sentence
            left = f"{listed(presence.left)} left it" if presence.left else "another rank ended"
            print(f"rank {exchange.rank()} leaves the run, because {left}: {reason}", file=sys.stderr, flush=True)
        return False
    print(f"{sentence}; the other ranks end, because every step needs all ranks", file=sys.stderr, flush=True)
    exchange.abort()
    return False


def _others_leave(seconds: float) -> bool:
    if (presence := current_presence()) is not None:
        presence.leave(State.LEFT)
        return presence.wait(seconds) is Verdict.ENDED

    def meet() -> None:
        with suppress(Exception):  # another rank has ended
            exchange.alltoall(tf.zeros([exchange.size()]), name="of ranks that have left the run")

    thread = threading.Thread(target=meet, name="leave", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def break_seconds() -> float:
    """The time for the other ranks to end their steps, too. They can save a model before."""
    return float(os.environ.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") or 0) or BREAK_SECONDS
