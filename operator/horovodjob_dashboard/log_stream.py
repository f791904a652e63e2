"""The log of a pod for a browser: chunks as they arrive, and nothing of it is held in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from horovodjob_cli.cluster import kube
from horovodjob_cli.cluster.connections import Closed, Connections
from horovodjob_cli.jobs.logs import open_log

Object = dict[str, Any]
FIRST_LINES = 1000
QUEUED_CHUNKS = 16


async def chunks(pod: Object, *, follow: bool) -> AsyncIterator[bytes]:
    """The log of the pod's container: with `follow` its last lines and then each new one, else all of it.

    A thread reads it, as fast as the browser takes it; it ends with this iterator. Raises the errors of the client.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(QUEUED_CHUNKS)
    last = {"tail_lines": FIRST_LINES} if follow else {}
    connections = await asyncio.to_thread(lambda: Connections(kube.client()))

    def put(item: bytes | Exception | None) -> None:
        connections.check()
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):  # the event loop has ended
            asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        try:
            with contextlib.closing(open_log(pod, follow=follow, **last)) as response:
                for chunk in response.stream():
                    put(chunk)
            put(None)
        except Closed:
            raise
        except Exception as error:
            put(error)

    connections.start(read)
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        # The thread waits for data, or for room in the queue.
        connections.close()
        queue.get_nowait() if queue.full() else None
