"""The order in which requests go to the API server while all slots for requests are in use."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum


class Priority(IntEnum):
    """Which requests go first."""

    HIGH = 0
    """All others: a status that is written after all creations of a burst is late."""
    LOW = 1
    """Creations, of which a job has as many as it has pods."""


class RequestQueue:
    """So many requests at a time; of those that wait, one of high priority goes first, then the one that came first."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: dict[Priority, deque[asyncio.Future[None]]] = {priority: deque() for priority in Priority}

    @property
    def depth(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiting.values()))

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
            if not turn.cancelled():  # it got the slot in the moment of its cancellation
                self._release()
            raise
        finally:
            self._waiting[priority].remove(turn)

    def _release(self) -> None:
        """Gives the slot to the next that waits, without a moment in which somebody else could take it."""
        waiting = (turn for turns in self._waiting.values() for turn in turns if not turn.done())
        if turn := next(waiting, None):
            turn.set_result(None)
        else:
            self._free += 1
