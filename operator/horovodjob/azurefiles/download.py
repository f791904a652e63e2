"""Download of files and directories: complete or not at all under the final name, and resumed where possible."""

import fcntl
import glob
import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from horovodjob.azurefiles.errors import FileChanged, FilesError
from horovodjob.azurefiles.files import FileState, FileStore, Part, Progress, joined, no_progress

BLOCK_BYTES = 8 << 20
READERS = 4
ATTEMPTS = 5


def download_file(store: FileStore, path: str, target: Path, progress: Progress = no_progress) -> None:
    """Download a file to `target`, through a hidden file in the same directory that a later call resumes.

    The hidden file has the version in its name, so bytes of two versions never meet. Raises FilesError, OSError.
    """
    for _ in range(ATTEMPTS):
        state = store.state(path)
        partial = _partial(target, state)
        for other in target.parent.glob(f"{glob.escape(_partial_prefix(target))}*"):
            if other != partial:
                other.unlink(missing_ok=True)
        try:
            with partial.open("ab") as file:
                _lock(file, target)
                _complete(store, path, state, file, progress)
        except FileChanged:
            partial.unlink(missing_ok=True)
            continue
        partial.replace(target)
        return
    raise FileChanged(f"{path} keeps changing: download it when its writer has finished, or stream it")


def download_directory(store: FileStore, path: str, target: Path, progress: Progress = no_progress) -> None:
    """Download a whole directory. Raises FilesError, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in store.entries(path):
        if "/" in entry.name or entry.name in ("", ".", ".."):
            raise FilesError(f"{path}: the service lists the name {entry.name!r}, which is not that of a file")
        download = download_directory if entry.is_directory else download_file
        download(store, joined(path, entry.name), target / entry.name, progress)


def _partial_prefix(target: Path) -> str:
    return f".{target.name[:200]}.hvj-"


def _partial(target: Path, state: FileState) -> Path:
    digest = hashlib.sha256(f"{state.identity} {state.version} {state.size}".encode()).hexdigest()[:16]
    return target.with_name(f"{_partial_prefix(target)}{digest}")


def _lock(file: BinaryIO, target: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FilesError(f"{target} is being downloaded by another process") from None


def _complete(store: FileStore, path: str, state: FileState, file: BinaryIO, progress: Progress) -> None:
    """Append the missing bytes. Raises FileChanged if the file no longer has this state."""
    position = file.seek(0, os.SEEK_END)
    progress(path, position, state.size)
    for part in _parts(store, path, position, state.size):
        if part.state.version != state.version or part.state.identity != state.identity:
            if position or len(part.data) < part.state.size:
                raise FileChanged(path)
            state = part.state  # it grew, and the first part has all of it
        file.write(part.data)
        position += len(part.data)
        progress(path, position, state.size)
    if position != state.size:
        raise FileChanged(path)


def _parts(store: FileStore, path: str, start: int, end: int) -> Iterator[Part]:
    """Blocks from `start`, in order, several requests at a time."""
    offsets = deque(range(start, end, BLOCK_BYTES))
    with ThreadPoolExecutor(READERS) as pool:
        reads: deque[Future[Part]] = deque()
        try:
            while reads or offsets:
                while offsets and len(reads) < READERS:
                    reads.append(pool.submit(store.read, path, offsets.popleft(), BLOCK_BYTES))
                yield reads.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
