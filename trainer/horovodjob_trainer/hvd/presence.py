"""What the ranks do, which they exchange every two seconds in a training: each trains, waits or has left.

So a rank that has left knows whether the others leave, too, or wait for it without end.
"""

import atexit
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, IntEnum
from functools import cache
from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.exchange import exchange, is_concurrent
from horovodjob_trainer.watch.activity import ACTIVITY, Field, Place
from horovodjob_trainer.watch.marker import create_marker, marked_place

ROUND_SECONDS = 2.0
WAIT_SECONDS = 5.0  # in one exchange, after which a rank says that it waits
EXIT_SECONDS = 10.0


class State(IntEnum):
    """What a rank does: it trains, waits in an exchange, has left the training before its end, or has ended it."""

    TRAINS, WAITS, LEFT, ENDED = range(4)


class Verdict(Enum):
    """Whether the training continues. It has ended if no rank is in it; it is stuck if some wait for one that left."""

    CONTINUES, ENDED, STUCK = range(3)


def verdict(ranks: Sequence[tuple[State, int]]) -> Verdict:
    """The verdict on the states of all ranks and the steps that they have begun."""
    left = [step for state, step in ranks if state is State.LEFT]
    others = [(state, step) for state, step in ranks if state in (State.TRAINS, State.WAITS)]
    if not others:
        return Verdict.ENDED
    if not left:
        return Verdict.CONTINUES
    # A rank in the step in which another has left can still leave it, too.
    has_continued = any(step > min(left) for _, step in others)
    return Verdict.STUCK if has_continued or all(state is State.WAITS for state, _ in others) else Verdict.CONTINUES


class Presence:
    """The state of this rank in a training. A thread exchanges the states of all ranks until the verdict is final."""

    def __init__(self, steps: int = 0) -> None:
        self.state, self.steps, self.found = State.TRAINS, steps, Verdict.CONTINUES
        self.left: list[int] = []
        """The ranks that have left before the end of the training, as far as this rank knows."""
        self.is_over = False
        """Whether this rank is out of the context of the training."""
        self._changed, self._known = threading.Event(), threading.Event()
        self._waits_in, self._waits_since = (0.0, 0.0, 0), time.monotonic()
        self._thread = threading.Thread(target=self._exchange_rounds, name="presence", daemon=True)
        self._thread.start()

    def leave(self, state: State) -> None:
        """Let the other ranks know that this one is not in the training any more."""
        self.state = state
        self._changed.set()

    def wait(self, seconds: float | None = None) -> Verdict:
        """The final verdict, or the present one if none is final after these seconds."""
        self._known.wait(seconds)
        return self.found

    @property
    def is_known(self) -> bool:
        """Whether the verdict is final, or another rank has ended."""
        return self._known.is_set()

    def left_ranks(self, seconds: float) -> list[int]:
        """The ranks that have left before the end. Waits at most these seconds for the final verdict."""
        self.wait(seconds)
        return self.left

    def end(self) -> None:
        """End the thread before Python ends. It can wait for ranks that continue."""
        if self._thread.is_alive():
            exchange.shutdown()
            self._thread.join(EXIT_SECONDS)

    def _exchange_rounds(self) -> None:
        with suppress(Exception):  # another rank has ended
            gather = _gather()
            while self.found is Verdict.CONTINUES:
                self._changed.wait(ROUND_SECONDS)
                self._changed.clear()
                own = tf.constant([[self._own_state(), self.steps]], tf.int64)
                ranks = [(State(state), step) for state, step in gather(own).numpy().tolist()]
                self.left = [rank for rank, (state, _) in enumerate(ranks) if state is State.LEFT]
                self.found = verdict(ranks)
        self._known.set()

    def _own_state(self) -> State:
        place = marked_place()
        is_waiting = ACTIVITY[Field.EXCHANGES] > 0 or place is Place.EXCHANGE
        exchanges = (ACTIVITY.exchange_since, float(place), self.steps)
        if not is_waiting or exchanges != self._waits_in:
            self._waits_in, self._waits_since = exchanges, time.monotonic()
        has_waited = is_waiting and time.monotonic() - self._waits_since >= WAIT_SECONDS
        return State.WAITS if self.state is State.TRAINS and has_waited else self.state


_presences: list[Presence] = []  # at most one: that of the last training


@contextmanager
def present() -> Iterator[None]:
    """Within this context, this rank is in a training. Every rank enters it; a context within does nothing."""
    if current_presence() is not None or not is_concurrent or exchange.size() == 1:
        yield
        return
    if _presences:
        _presences.pop().wait()  # its operations have the same name
    else:
        atexit.register(_end_last)  # before Horovod ends
    create_marker()
    _presences.append(Presence())
    try:
        yield
    finally:
        current = _presences[-1]
        current.is_over = True
        if current.state is State.TRAINS:
            current.leave(State.ENDED)


def _end_last() -> None:
    for presence in _presences:
        presence.end()


def current_presence() -> Presence | None:
    """The presence of this rank in the training that it is in, None outside of one."""
    return _presences[-1] if _presences and not _presences[-1].is_over else None


def begin_step() -> None:
    """Record that this rank begins a step."""
    if (current := current_presence()) is not None:
        current.steps += 1


def come_back() -> None:
    """Let this rank, which has left together with all others, be in the training again."""
    if (current := current_presence()) is not None:
        _presences.append(Presence(current.steps))
        del _presences[0]


@cache
def _gather() -> Any:
    """A function that exchanges the states. Horovod knows the operations of a graph by their names."""

    @tf.function(input_signature=[tf.TensorSpec([1, 2], tf.int64)], autograph=False)  # type: ignore[untyped-decorator]
    def gather(own: Any) -> Any:
        with tf.device("/CPU:0"):
            return exchange.allgather(own, name="HorovodPresence", ignore_name_scope=True)

    return gather
