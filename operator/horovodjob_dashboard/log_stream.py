"""Logs for a browser, of a container or of a file on a share: rows or chunks as they arrive. None of it is held."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.errors import NotFound
from horovodjob.azurefiles.files import FileStore
from horovodjob.azurefiles.tail import tail_bytes
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import Closed, Connections
from horovodjob.client.files.job_files import STDOUTERR, open_directory
from horovodjob.client.jobs.container_log import followed, open_log
from horovodjob.client.jobs.log_lines import LineBuffer
from horovodjob.terminal import Terminal
from horovodjob_dashboard.job_details import STDOUT

Object = dict[str, Any]
Part = TypeVar("Part")
FIRST_LINES = 1000
LAST_BYTES = 256 << 10
# Of a longer line, the middle is left out: lines are held until they end, and a page has no more characters.
LONGEST_LINE = 2 << 20
# As the client of Kubernetes reads a log; a share is read in larger parts.
CHUNK_BYTES = 16 << 10
QUEUED_PARTS = 16


class Rows(NamedTuple):
    """More rows of a log, each with its newline, and those that can still change, such as progress bars."""

    finished: str
    changing: str


async def rows(pod: Object) -> AsyncGenerator[Rows]:
    """The last rows of the pod's container and then each new one, until the container ends; see `followed`."""
    async with contextlib.aclosing(_in_thread(_rendered(followed(pod, FIRST_LINES, longest=LONGEST_LINE)))) as read:
        async for part in read:
            yield part


async def chunks(pod: Object) -> AsyncGenerator[bytes]:
    """All that the pod's container has written. Raises the errors of the client."""

    def parts() -> Iterator[bytes]:
        with contextlib.closing(open_log(pod)) as response:
            yield from response.stream()

    async with contextlib.aclosing(_in_thread(parts())) as read:
        async for chunk in read:
            yield chunk


async def stdout_rows(job: Object, options: Options, has_ended: Callable[[], bool]) -> AsyncGenerator[Rows]:
    """The file on the job's share with the output of all ranks, from its last rows until the job ends.

    Raises ClientError and FilesError.
    """
    stopped = threading.Event()
    found = _rendered(_lines(_stdout(job, options, has_ended, stopped, follow=True)))
    async with contextlib.aclosing(_in_thread(found, stopped.set)) as read:
        async for part in read:
            yield part


async def stdout_chunks(job: Object, options: Options, has_ended: Callable[[], bool]) -> AsyncGenerator[bytes]:
    """All of the file on the job's share with the output of all ranks. Raises ClientError and FilesError."""
    stopped = threading.Event()
    found = _stdout(job, options, has_ended, stopped, follow=False)
    async with contextlib.aclosing(_in_thread(found, stopped.set)) as read:
        async for chunk in read:
            yield chunk


def _stdout(
    job: Object, options: Options, has_ended: Callable[[], bool], stopped: threading.Event, *, follow: bool
) -> Iterator[bytes]:
    with open_directory(job, STDOUTERR, ".", options, with_pods=False) as place:
        path = f"{place.path}/{STDOUT}"
        start = _start_of_last_lines(place.store, path) if follow else 0
        is_over = stopped.is_set if follow else lambda: True
        for data in tail_bytes(place.store, path, lambda: is_over() or has_ended(), stopped.wait, start):
            for begin in range(0, len(data), CHUNK_BYTES):
                if stopped.is_set():
                    return
                yield data[begin : begin + CHUNK_BYTES]


def _lines(parts: Iterable[bytes]) -> Iterator[list[bytes] | bytes]:
    """The lines of a file; as bytes, the end of an unfinished one."""
    buffer = LineBuffer(longest=LONGEST_LINE)
    for part in parts:
        if found := buffer.lines(part):
            yield found
        if state := buffer.state:
            yield state
    if rest := buffer.rest:
        yield [rest]


def _rendered(parts: Iterable[list[bytes] | bytes]) -> Iterator[Rows]:
    """The rows that a terminal shows."""
    terminal = Terminal()
    for part in parts:
        lines, rest = (part, b"") if isinstance(part, list) else ([], part)
        finished = [row for line in lines for row in terminal.line(line.decode(errors="replace"))]
        yield _rows(finished, terminal.shown(rest.decode(errors="ignore")))
    yield _rows(terminal.rest(), [])


def _rows(finished: list[str], changing: list[str]) -> Rows:
    return Rows("".join(f"{row}\n" for row in finished), "\n".join(changing))


def _start_of_last_lines(store: FileStore, path: str) -> int:
    """Where to begin so that a long file is not read from its beginning; 0 for a file that does not exist yet."""
    try:
        start = max(store.state(path).size - LAST_BYTES, 0)
        return start + store.read(path, start, LAST_BYTES).data.find(b"\n") + 1 if start else 0
    except NotFound:
        return 0


async def _in_thread(parts: Iterator[Part], stop: Callable[[], None] = lambda: None) -> AsyncGenerator[Part]:
    """The parts, which a thread reads as fast as they are taken.

    At the end of this iterator, `stop` is called and the thread's requests to the API server are closed.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Part | Exception | None] = asyncio.Queue(QUEUED_PARTS)
    connections = await asyncio.to_thread(lambda: Connections(kube.client()))

    def put(item: Part | Exception | None) -> None:
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
