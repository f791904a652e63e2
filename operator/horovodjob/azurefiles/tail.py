"""A file as it grows, from its first to its last byte."""

import codecs
import time
from collections.abc import Callable, Iterator

from horovodjob.azurefiles.errors import NotFound, ShareNotFound, Unavailable
from horovodjob.azurefiles.files import FileStore

RANGE_BYTES = 4 << 20
SHORTEST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 5.0
MOST_FAILURES = 10


def tail(
    store: FileStore,
    path: str,
    is_finished: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Text of the file, as it is written, until its writer has finished and the whole file was read.

    Waits for a file that does not exist yet; starts from the beginning if the file was truncated or replaced. Never
    splits a character. Bytes that are not UTF-8 become surrogates, and `encode("utf-8", "surrogateescape")` restores
    them. Raises FilesError: NotFound if the writer finished without creating the file.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for data in tail_bytes(store, path, is_finished, sleep):
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def tail_bytes(
    store: FileStore,
    path: str,
    is_finished: Callable[[], bool],
    sleep: Callable[[float], object] = time.sleep,
    start: int = 0,
) -> Iterator[bytes]:
    """Bytes of the file from `start`, as they are written; see `tail`."""
    position, identity, failures, wait = start, "", 0, SHORTEST_WAIT_SECONDS
    while True:
        # Checked before the read, so that the last read includes everything that the writer wrote.
        finished = is_finished()
        exhausted = False
        try:
            while not exhausted:
                part = store.read(path, position, RANGE_BYTES)
                failures = 0
                if part.state.size < position or identity not in ("", part.state.identity):
                    position, identity = 0, part.state.identity
                    continue
                identity = part.state.identity
                if part.data:
                    wait = SHORTEST_WAIT_SECONDS
                    yield part.data
                position += len(part.data)
                exhausted = position >= part.state.size or not part.data
        except ShareNotFound:
            raise
        except NotFound:
            if finished and not identity:
                raise
        except Unavailable:
            failures += 1
            if failures == MOST_FAILURES:
                raise
            finished = False
        if finished:
            return
        sleep(wait)
        wait = min(wait * 1.5, LONGEST_WAIT_SECONDS)
