"""Upload of files and directories: complete under the final name, or not at all."""

import hashlib
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from horovodjob.azurefiles.concurrency import BLOCKS_OF_A_FILE, GRACE_SECONDS, Transfers
from horovodjob.azurefiles.error_translation import translate_errors
from horovodjob.azurefiles.errors import DirectoryNotFound, FileChanged, FileNotFound, FilesError
from horovodjob.azurefiles.files import Entry, Plan, Progress, joined, no_plan, no_progress
from horovodjob.azurefiles.share import Share

BLOCK_BYTES = 4 << 20  # the service's limit of a request
PARTIAL = re.compile(r"\..+\.hvj-[0-9a-f]{16}")
# Since its last write, a partial file is of an upload that was killed: one that runs writes every few seconds.
STALE_SECONDS = 3600


def upload_file(share: Share, source: Path, path: str, progress: Progress = no_progress) -> None:
    """Upload a file to `path`, in a directory that exists. Raises FilesError, OSError."""
    _Upload(share, progress).run([(source, path)])
    with suppress(FilesError):
        _delete_stale(share, path.rpartition("/")[0], share.entries(path.rpartition("/")[0], f".{_short(path)}.hvj-"))


def upload_contents(
    share: Share,
    directory: str,
    sources: Mapping[str, Path],
    progress: Progress = no_progress,
    plan: Plan = no_plan,
) -> None:
    """Upload the files that the directory does not have; each has the SHA-256 of its content as its name.

    A second call continues an upload. Raises FilesError, OSError.
    """
    try:
        there = share.entries(directory)
    except DirectoryNotFound:
        share.create_directory(directory)
        there = []
    _delete_stale(share, directory, there)
    missing = sources.keys() - {entry.name for entry in there}
    files = [(sources[digest], joined(directory, digest)) for digest in sorted(missing)]
    plan(len(files), sum(source.stat().st_size for source, _ in files))
    _Upload(share, progress, by_content=True).run(files)


def upload_directory(
    share: Share,
    source: Path,
    path: str,
    progress: Progress = no_progress,
    plan: Plan = no_plan,
    *,
    delete: bool = False,
) -> None:
    """Upload a whole directory to `path`, which is created, several files at a time. Raises FilesError, OSError.

    Omits files that the share has with the same size and time, so a second call continues an upload. With `delete`,
    deletes at the end what the source does not have.
    """
    if path:
        share.create_directory(path)
    files, extra = [], []
    for directory, names, there in _directories(share, source, path):
        _delete_stale(share, directory, list(there.values()))
        files += [
            (file, joined(directory, name))
            for name, file in names.items()
            if not file.is_dir() and not _is_same(file, there.get(name))
        ]
        kept = {name.casefold() for name in names}  # as the service compares names
        extra += [
            (joined(directory, name), entry)
            for name, entry in there.items()
            if name.casefold() not in kept and not PARTIAL.fullmatch(name)
        ]
    plan(len(files), sum(file.stat().st_size for file, _ in files))
    _Upload(share, progress).run(files)
    if delete:
        for extra_path, entry in extra:
            delete_entry(share, extra_path, is_directory=entry.is_directory)


def delete_entry(share: Share, path: str, *, is_directory: bool) -> None:
    """Delete a file, or a directory with its contents. Raises FilesError."""
    if not is_directory:
        share.delete_file(path)
        return
    for entry in share.entries(path):
        delete_entry(share, joined(path, entry.name), is_directory=entry.is_directory)
    share.delete_directory(path)


class _Upload:
    """Uploads to one share that run at the same time, and their partial files."""

    def __init__(self, share: Share, progress: Progress, *, by_content: bool = False) -> None:
        self.share, self.progress, self.transfers = share, progress, Transfers()
        self.by_content = by_content
        self.partial: set[str] = set()

    def run(self, files: list[tuple[Path, str]]) -> None:
        try:
            self.transfers.run(self._upload, files)
        except BaseException:
            self._delete_partial()
            raise

    def _upload(self, source: Path, path: str) -> None:
        self.transfers.check()
        temporary = joined(path.rpartition("/")[0], f".{_short(path)}.hvj-{secrets.token_hex(8)}")
        self.partial.add(temporary)
        try:
            identity, written = self._write(source, temporary, path)
            _rename(self.share, temporary, path, identity, written)
        except BaseException:
            self._delete(temporary)
            raise
        self.partial.discard(temporary)

    def _write(self, source: Path, temporary: str, path: str) -> tuple[str, datetime]:
        """Write the content; the identity of the file, and the time of the source's content."""
        with source.open("rb") as file, translate_errors(self.share.account, self.share.name, path):
            before = os.fstat(file.fileno())
            self.progress(path, 0, before.st_size)
            client = self.share.file(temporary)
            identity = str(client.create_file(before.st_size)["file_id"])
            digest = hashlib.sha256()
            for done in self._blocks(client, file, before.st_size, digest):
                self.progress(path, done, before.st_size)
            after = os.fstat(file.fileno())
        is_changed = self.by_content and digest.hexdigest() != path.rpartition("/")[2]
        if after.st_size != before.st_size or is_changed:
            raise FileChanged(f"{source} changed while it was uploaded; upload it again when its writer has finished")
        # The time before: a later upload sends the file again if it was changed in place.
        return identity, datetime.fromtimestamp(before.st_mtime, UTC)

    def _blocks(self, client: Any, file: BinaryIO, size: int, digest: "hashlib._Hash") -> Iterator[int]:
        """Bytes that the share has, after each block; `digest` gets all of them."""
        if 0 < size <= BLOCK_BYTES:  # most files: no other thread is worth its start
            data = file.read(size).ljust(size, b"\0")
            digest.update(data)
            self.transfers.check()
            client.upload_range(data, 0, size)
            yield size
            return
        writes: deque[tuple[int, Future[Any]]] = deque()
        start = 0
        try:
            while writes or start < size:
                while start < size and len(writes) < BLOCKS_OF_A_FILE:
                    # A file that became shorter is padded here, and found to have changed at its end.
                    data = file.read(min(BLOCK_BYTES, size - start)).ljust(min(BLOCK_BYTES, size - start), b"\0")
                    digest.update(data)
                    writes.append(
                        (start + len(data), self.transfers.start_block(client.upload_range, data, start, len(data)))
                    )
                    start += len(data)
                end, write = writes.popleft()
                write.result()
                yield end
        finally:
            for _, write in writes:
                write.cancel()

    def _delete(self, temporary: str) -> None:
        with suppress(FilesError):
            self.share.delete_file(temporary)
        self.partial.discard(temporary)

    def _delete_partial(self) -> None:
        """Delete what uploads that still run have written, without a long wait."""
        if left := list(self.partial):
            pool = ThreadPoolExecutor(len(left))
            wait([pool.submit(self._delete, each) for each in left], GRACE_SECONDS)
            pool.shutdown(wait=False)


def _directories(share: Share, source: Path, path: str) -> Iterator[tuple[str, dict[str, Path], dict[str, Entry]]]:
    """Each directory of the share, with the source's entries and its own by name; creates those that are missing."""
    try:
        there = {entry.name: entry for entry in share.entries(path)}
    except DirectoryNotFound:
        share.create_directory(path)
        there = {}
    names = {each.name: each for each in sorted(source.iterdir())}
    yield path, names, there
    for name, inner in names.items():
        if inner.is_dir():
            yield from _directories(share, inner, joined(path, name))


def _is_same(file: Path, entry: Entry | None) -> bool:
    """Whether the share has the file with this size and time, in milliseconds, as rsync compares."""
    if entry is None or entry.is_directory or entry.written is None:
        return False
    found = file.stat()
    return entry.size == found.st_size and abs(entry.written.timestamp() - found.st_mtime) < 0.001


def _delete_stale(share: Share, directory: str, entries: list[Entry]) -> None:
    """Delete partial files of uploads that were killed."""
    now = time.time()
    for entry in entries:
        if PARTIAL.fullmatch(entry.name) and entry.written and now - entry.written.timestamp() > STALE_SECONDS:
            with suppress(FilesError):
                share.delete_file(joined(directory, entry.name))


def _short(path: str) -> str:
    """The name of the file, so short that a suffix fits."""
    return path.rpartition("/")[2][:200]


def _rename(share: Share, temporary: str, path: str, identity: str, written: datetime) -> None:
    try:
        with translate_errors(share.account, share.name, path):
            share.file(temporary).rename_file(path, overwrite=True, file_last_write_time=written)
    except FileNotFound:
        # The SDK repeats a rename that succeeded if only the response was lost.
        if share.state(path).identity != identity:
            raise
