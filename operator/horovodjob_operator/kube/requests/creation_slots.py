"""How many creations are sent at a time: a namespace with a slow admission webhook must not delay the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

# A creation that takes longer waits for a webhook, and not for the API server.
SLOW_SECONDS = 1.0
NAMESPACE_SHARE = 0.75


class CreationSlots:
    """Slots for creations, of which a namespace has at most a share."""

    def __init__(self, number: int) -> None:
        self._slots = asyncio.Semaphore(number)
        self._share = max(round(number * NAMESPACE_SHARE), 1)
        self._of_namespace: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """A slot for one creation. A slow one gives it back before it ends, and then counts for its namespace alone."""
        own = self._of_namespace.setdefault(namespace, asyncio.Semaphore(self._share))
        async with own:
            await self._slots.acquire()
            is_held = True

            def release() -> None:
                nonlocal is_held
                if is_held:
                    is_held = False
                    self._slots.release()

            timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, release)
            try:
                yield
            finally:
                timer.cancel()
                release()
