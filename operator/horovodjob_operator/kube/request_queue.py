"""The order in which requests are sent to the API server while all slots are in use."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum


class Priority(IntEnum):
    """Which requests are sent first."""

    HIGH = 0
    """All others: a status must not wait for all creations of a burst."""
    LOW = 1
    """Creations: a job has one for each pod."""
    LOWEST = 2
    """Events of an earlier process: most of them are posted already."""


class RequestQueue:
    """Limits the requests at a time; those that wait are sent by priority, then in the order of their arrival."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: dict[Priority, deque[asyncio.Future[None]]] = {priority: deque() for priority in Priority}
        self._full_at = -math.inf

    @property
    def depth(self) -> int:
        """How many requests wait for a slot."""
        return sum(map(len, self._waiting.values()))

    @property
    def seconds_since_full(self) -> float:
        """Time since a request last had to wait for a slot."""
        return 0.0 if self.depth else time.monotonic() - self._full_at

    @asynccontextmanager
    async def slot(self, priority: Priority) -> AsyncIterator[None]:
        """A slot for one request."""
        await self._acquire(priority)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, priority: Priority) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[priority].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # It got the slot at the moment of its cancellation.
                self._release()
            raise
        finally:
            self._waiting[priority].remove(turn)
            self._full_at = time.monotonic()

    def _release(self) -> None:
        """Passes the slot to the next request that waits, before a new request can take it."""
        waiting = (turn for turns in self._waiting.values() for turn in turns if not turn.done())
        if turn := next(waiting, None):
            turn.set_result(None)
        else:
            self._free += 1
