"""Download of files and directories: complete or not at all under the final name, and resumed where possible."""

import glob
import hashlib
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

from horovodjob.azurefiles.concurrency import BLOCKS_OF_A_FILE, Transfers
from horovodjob.azurefiles.errors import FileChanged, FilesError
from horovodjob.azurefiles.file_lock import lock
from horovodjob.azurefiles.files import Entry, FileState, FileStore, Part, Plan, Progress, joined, no_plan, no_progress

BLOCK_BYTES = 8 << 20
ATTEMPTS = 5
IS_WINDOWS = os.name == "nt"
# Windows takes these for separators, drives, streams and patterns, or drops them at the end of a name.
NOT_ON_WINDOWS = re.compile(r'[\x00-\x1f\\/:*?"<>|]|[. ]$')
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d) *", re.IGNORECASE)


def download_file(store: FileStore, path: str, target: Path, progress: Progress = no_progress) -> None:
    """Download a file to `target`, through a hidden file in the same directory that a later call resumes.

    The hidden file has the version in its name, so bytes of two versions never meet. Raises FilesError, OSError.
    """
    _Download(store, progress).run([(path, target)])


def download_directory(
    store: FileStore, path: str, target: Path, progress: Progress = no_progress, plan: Plan = no_plan
) -> None:
    """Download a whole directory, several files at a time. Raises FilesError, OSError."""
    files = list(_Tree(store, path).files(target))
    plan(len(files), sum(size for _, _, size in files))
    _Download(store, progress).run([(path, target) for path, target, _ in files])


def local_name(name: str) -> str:
    """The name, which a file of this machine can have. Raises FilesError for one that leads out of its directory."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise FilesError(f"{name!r} is listed, and is not the name of a file")
    if IS_WINDOWS and (NOT_ON_WINDOWS.search(name) or DEVICE.fullmatch(name.partition(".")[0])):
        raise FilesError(f"{name!r} cannot be the name of a file on Windows: download it on Linux or macOS")
    return name


class _Tree:
    """The files below a directory of a store.

    Links to directories are followed on the device of that directory, but not to a directory that contains them, and
    within another link once: links of a volume can form loops, and lead to `/proc`.
    """

    def __init__(self, store: FileStore, path: str) -> None:
        self._store, self._path = store, path
        self._above = store.lineage(path)
        self._device = self._above[0].partition(":")[0] if self._above else ""
        self._followed: set[str] = set()

    def files(self, target: Path) -> Iterator[tuple[str, Path, int]]:
        """Path, target and size of each file; the targets of directories are created."""
        return self._files(self._path, target, frozenset(self._above), within_link=False)

    def _files(
        self, path: str, target: Path, above: frozenset[str], *, within_link: bool
    ) -> Iterator[tuple[str, Path, int]]:
        target.mkdir(parents=True, exist_ok=True)
        for entry in self._store.entries(path):
            inner = joined(path, entry.name), target / local_name(entry.name)
            if not entry.is_directory:
                yield *inner, entry.size
            elif not entry.is_link or self._follows(entry, above, within_link=within_link):
                is_within = within_link or entry.is_link
                yield from self._files(*inner, above | {entry.identity}, within_link=is_within)

    def _follows(self, link: Entry, above: frozenset[str], *, within_link: bool) -> bool:
        if link.identity in above or link.identity.partition(":")[0] != self._device:
            return False
        is_new = link.identity not in self._followed
        self._followed.add(link.identity)
        return is_new or not within_link


class _Download:
    """Downloads from one store that run at the same time."""

    def __init__(self, store: FileStore, progress: Progress) -> None:
        self.store, self.progress, self.transfers = store, progress, Transfers()

    def run(self, files: list[tuple[str, Path]]) -> None:
        self.transfers.run(self._download, files)

    def _download(self, path: str, target: Path) -> None:
        for _ in range(ATTEMPTS):
            state = self.store.state(path)
            partial = _partial(target, state)
            for other in target.parent.glob(f"{glob.escape(_partial_prefix(target))}*"):
                if other != partial:
                    other.unlink(missing_ok=True)
            try:
                with partial.open("ab") as file:
                    _lock(file, target)
                    self._complete(path, state, file)
            except FileChanged:
                partial.unlink(missing_ok=True)
                continue
            partial.replace(target)
            return
        raise FileChanged(f"{path} keeps changing: download it when its writer has finished, or stream it")

    def _complete(self, path: str, state: FileState, file: BinaryIO) -> None:
        """Append the missing bytes. Raises FileChanged if the file no longer has this state."""
        position = file.seek(0, os.SEEK_END)
        self.progress(path, position, state.size)
        for part in self._parts(path, position, state.size):
            if part.state.version != state.version or part.state.identity != state.identity:
                if position or len(part.data) < part.state.size:
                    raise FileChanged(path)
                state = part.state  # it grew, and the first part has all of it
            file.write(part.data)
            position += len(part.data)
            self.progress(path, position, state.size)
        if position != state.size:
            raise FileChanged(path)

    def _parts(self, path: str, start: int, end: int) -> Iterator[Part]:
        """Blocks from `start`, in order, several requests at a time."""
        offsets = deque(range(start, end, BLOCK_BYTES))
        reads: deque[Future[Part]] = deque()
        try:
            while reads or offsets:
                while offsets and len(reads) < BLOCKS_OF_A_FILE:
                    reads.append(self.transfers.start_block(self.store.read, path, offsets.popleft(), BLOCK_BYTES))
                yield reads.popleft().result()
        finally:
            for read in reads:
                read.cancel()


def _partial_prefix(target: Path) -> str:
    return f".{target.name[:200]}.hvj-"


def _partial(target: Path, state: FileState) -> Path:
    digest = hashlib.sha256(f"{state.identity} {state.version} {state.size}".encode()).hexdigest()[:16]
    return target.with_name(f"{_partial_prefix(target)}{digest}")


def _lock(file: BinaryIO, target: Path) -> None:
    try:
        lock(file)
    except (BlockingIOError, PermissionError):  # of Linux and macOS, and of Windows
        raise FilesError(f"{target} is being downloaded by another process") from None
