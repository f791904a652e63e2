"""Logs for a browser, of a container or of a file on a share: chunks as they arrive. None of it is held in memory."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.errors import NotFound
from horovodjob.azurefiles.files import FileStore
from horovodjob.azurefiles.tail import tail_bytes
from horovodjob_cli.cluster import kube
from horovodjob_cli.cluster.connections import Closed, Connections
from horovodjob_cli.files.job_files import STDOUTERR, open_directory
from horovodjob_cli.jobs.container_log import open_log
from horovodjob_dashboard.job_details import STDOUT

Object = dict[str, Any]
FIRST_LINES = 1000
LAST_BYTES = 256 << 10
# As the client of Kubernetes reads a log; a share is read in larger parts.
CHUNK_BYTES = 16 << 10
QUEUED_CHUNKS = 16


async def chunks(pod: Object, *, follow: bool) -> AsyncGenerator[bytes]:
    """The log of the pod's container: with `follow` its last lines and then each new one, else all of it.

    Raises the errors of the client.
    """
    last = FIRST_LINES if follow else None

    def parts() -> Iterator[bytes]:
        with contextlib.closing(open_log(pod, follow=follow, tail_lines=last)) as response:
            yield from response.stream()

    async with contextlib.aclosing(_in_thread(parts())) as read:
        async for chunk in read:
            yield chunk


async def stdout_chunks(
    job: Object, options: Options, has_ended: Callable[[], bool], *, follow: bool
) -> AsyncGenerator[bytes]:
    """The file on the job's share with the output of all ranks: with `follow` from its last lines until the job ends.

    Raises CliError and FilesError.
    """
    stopped = threading.Event()

    def parts() -> Iterator[bytes]:
        with open_directory(job, STDOUTERR, ".", options, with_pods=False) as place:
            path = f"{place.path}/{STDOUT}"
            start = _start_of_last_lines(place.store, path) if follow else 0
            is_over = stopped.is_set if follow else lambda: True
            for data in tail_bytes(place.store, path, lambda: is_over() or has_ended(), stopped.wait, start):
                for begin in range(0, len(data), CHUNK_BYTES):
                    if stopped.is_set():
                        return
                    yield data[begin : begin + CHUNK_BYTES]

    async with contextlib.aclosing(_in_thread(parts(), stopped.set)) as read:
        async for chunk in read:
            yield chunk


def _start_of_last_lines(store: FileStore, path: str) -> int:
    """Where to begin so that a long file is not read from its beginning; 0 for a file that does not exist yet."""
    try:
        start = max(store.state(path).size - LAST_BYTES, 0)
        return start + store.read(path, start, LAST_BYTES).data.find(b"\n") + 1 if start else 0
    except NotFound:
        return 0


async def _in_thread(parts: Iterator[bytes], stop: Callable[[], None] = lambda: None) -> AsyncGenerator[bytes]:
    """The parts, which a thread reads as fast as they are taken.

    At the end of this iterator, `stop` is called and the thread's requests to the API server are closed.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(QUEUED_CHUNKS)
    connections = await asyncio.to_thread(lambda: Connections(kube.client()))

    def put(item: bytes | Exception | None) -> None:
        connections.check()
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):  # the event loop has ended
            asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def read() -> None:
        try:
            for part in parts:
                put(part)
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
        stop()
        connections.close()
        queue.get_nowait() if queue.full() else None
