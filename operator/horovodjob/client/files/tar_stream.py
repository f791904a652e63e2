"""Files as tar archives, one for each batch: a pod puts a batch on its volume as a whole, or not at all."""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

CHUNK = 1 << 18
BATCH_BYTES = 64 << 20
BATCH_FILES = 1000
Member = tuple[str, Path]  # the path in the archive, and the source


def batches(files: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """The files, as many at a time as an archive has."""
    batch: list[Member] = []
    size = 0
    for member in files:
        batch.append(member)
        size += member[1].stat().st_size
        if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def archive(batch: Sequence[Member], parts: Callable[[str, Path], Iterator[bytes]]) -> Iterator[bytes]:
    """The archive of a batch; `parts` are the header and the content of a file, without what fills its last block."""
    size = 0
    for path, source in batch:
        for part in parts(path, source):
            size += len(part)
            yield part
        fill = -size % tarfile.BLOCKSIZE
        size += fill
        yield bytes(fill)
    end = 2 * tarfile.BLOCKSIZE
    yield bytes(end + -(size + end) % tarfile.RECORDSIZE)  # tar reads whole records
