"""The log of a pod for a browser: chunks as they arrive, and nothing of it is held in memory."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextvars import copy_context
from typing import Any

from horovodjob.api.constants import LABEL_ROLE
from horovodjob_cli.cluster import kube

Object = dict[str, Any]
FIRST_LINES = 1000
QUEUED_CHUNKS = 16
# Connect, read: a program can be silent for an hour; after that the connection may be dead.
TIMEOUT_SECONDS = (10, 3600)


async def chunks(pod: Object, *, follow: bool) -> AsyncIterator[bytes]:
    """The log of the pod's container: with `follow` its last lines and then each new one, else all of it.

    A thread reads it, as fast as the browser takes it; it ends with this iterator. Raises the errors of the client.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(QUEUED_CHUNKS)
    response = await asyncio.to_thread(_open, pod, follow)

    def put(item: bytes | Exception | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):  # the event loop has ended
            try:
                for chunk in response.stream():
                    put(chunk)
                put(None)
            except Exception as error:
                put(error)

    threading.Thread(target=copy_context().run, args=(read,), name="log", daemon=True).start()
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        # The thread waits for data, or for room in the queue.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            response.shutdown()
        queue.get_nowait() if queue.full() else None


def _open(pod: Object, follow: bool) -> Any:
    from kubernetes.client import ApiException

    metadata = pod["metadata"]
    response = kube.core().read_namespaced_pod_log(
        metadata["name"],
        metadata["namespace"],
        container=metadata["labels"][LABEL_ROLE],
        follow=follow,
        **({"tail_lines": FIRST_LINES} if follow else {}),
        _preload_content=False,
        _request_timeout=TIMEOUT_SECONDS,
    )
    if response.status != 200:
        raise ApiException(http_resp=response)
    return response
