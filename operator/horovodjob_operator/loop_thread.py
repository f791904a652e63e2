"""A thread with an event loop of its own, for what must not wait for the operator's loop while that is busy."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on its own event loop; the caller awaits their results on another."""

    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the thread, which the caller's cancellation cancels too."""
        return await run_on(self.loop, coroutine)

    async def stop(self) -> None:
        """Ends the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join)
        self.loop.close()


async def run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that runs on the loop of another thread."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))
