"""Upload of files and directories: complete under the final name, or not at all."""

import hashlib
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from horovodjob.azurefiles.concurrency import BLOCKS_OF_A_FILE, FILES, GRACE_SECONDS, Transfers
from horovodjob.azurefiles.error_translation import translate_errors
from horovodjob.azurefiles.errors import DirectoryNotFound, FileChanged, FileNotFound, FilesError
from horovodjob.azurefiles.files import Entry, Plan, Progress, joined, no_plan, no_progress
from horovodjob.azurefiles.share import Share

BLOCK_BYTES = 4 << 20  # the service's limit of a request
PARTIAL = re.compile(r"\..+\.hvj-[0-9a-f]{16}")
# A partial file without a write for so long is from an upload that was killed: a running one writes every few seconds.
STALE_SECONDS = 3600
# The files of a batch appear together, without a request for each. An interrupted upload sends the batch again.
BATCH_FILES = 200
FEWEST_OF_BATCHES = 20
MOST_DELETIONS = 32  # at the same time


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
) -> dict[str, str]:
    """Upload the files that the directory does not have; each has the SHA-256 of its content as its name.

    Returns the directory below `directory` in which each file is: each batch of small files has its own. A second call
    continues an upload. Raises FilesError, OSError.
    """
    there = _contents(share, directory)
    missing = {digest: source for digest, source in sorted(sources.items()) if digest not in there}
    sizes = {digest: source.stat().st_size for digest, source in missing.items()}
    plan(len(missing), sum(sizes.values()))
    small = [digest for digest, size in sizes.items() if size <= BLOCK_BYTES]
    batches = [small[start : start + BATCH_FILES] for start in range(0, len(small), BATCH_FILES)]
    for batch in batches if len(small) >= FEWEST_OF_BATCHES else ():
        name = _upload_batch(share, directory, {digest: missing.pop(digest) for digest in batch}, progress)
        there |= dict.fromkeys(batch, name)
    files = [(source, joined(directory, digest)) for digest, source in missing.items()]
    _Upload(share, progress, by_content=True).run(files)
    return {digest: there.get(digest, "") for digest in sources}


def _contents(share: Share, directory: str) -> dict[str, str]:
    """The batch of each file in the directory, empty for a file of none. Creates the directory if it is missing."""
    try:
        entries = share.entries(directory)
    except DirectoryNotFound:
        share.create_directory(directory)
        return {}
    _delete_stale(share, directory, entries)
    batches = [entry.name for entry in entries if entry.is_directory and not PARTIAL.fullmatch(entry.name)]
    with ThreadPoolExecutor(FILES) as pool:
        of_batches = list(pool.map(lambda batch: share.entries(joined(directory, batch)), batches))
    found = {file.name: batch for batch, files in zip(batches, of_batches, strict=True) for file in files}
    return found | {entry.name: "" for entry in entries if not entry.is_directory}


def _upload_batch(share: Share, directory: str, sources: Mapping[str, Path], progress: Progress) -> str:
    """Upload files to a new directory, which is renamed when all of them are complete. Returns its final name."""
    name = secrets.token_hex(8)
    temporary = joined(directory, _temporary(name))
    share.create_directory(temporary)
    upload = _Upload(share, progress, by_content=True, batch=temporary)
    try:
        upload.run([(source, joined(directory, digest)) for digest, source in sources.items()])
        share.rename_directory(temporary, joined(directory, name))
    except BaseException:
        upload.delete_partial()
        _within_grace(lambda: share.delete_directory(temporary))
        raise
    return name


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

    def __init__(self, share: Share, progress: Progress, *, by_content: bool = False, batch: str = "") -> None:
        self.share, self.progress, self.transfers = share, progress, Transfers()
        self.by_content, self.batch = by_content, batch
        self.partial: set[str] = set()

    def run(self, files: list[tuple[Path, str]]) -> None:
        try:
            self.transfers.run(self._upload, files)
        except BaseException:
            self.delete_partial()
            raise

    def _upload(self, source: Path, path: str) -> None:
        self.transfers.check()
        directory, _, name = path.rpartition("/")
        temporary = joined(self.batch, name) if self.batch else joined(directory, _temporary(path))
        self.partial.add(temporary)
        if self.batch:  # the whole directory is renamed
            self._write(source, temporary, path)
            return
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
        # The time before the upload, so that a later upload sends the file again if it was changed meanwhile.
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
                    # A file that became shorter is padded here, and refused after its last block.
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

    def delete_partial(self) -> None:
        """Delete what is not complete, without a long wait."""
        _within_grace(*(partial(self._delete, each) for each in list(self.partial)))


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
    """Delete partial files and batches of uploads that were killed."""
    for entry in filter(_is_stale, entries):
        path = joined(directory, entry.name)
        with suppress(FilesError):
            if entry.is_directory:
                _delete_batch(share, directory, path)
            else:
                share.delete_file(path)


def _delete_batch(share: Share, directory: str, path: str) -> None:
    """Rename a stale batch and delete it, so that an upload that still runs cannot complete a part of it."""
    if all(map(_is_old, share.entries(path))):
        deleted = joined(directory, _temporary("deleted"))
        share.rename_directory(path, deleted)
        delete_entry(share, deleted, is_directory=True)


def _is_stale(entry: Entry) -> bool:
    return PARTIAL.fullmatch(entry.name) is not None and _is_old(entry)


def _is_old(entry: Entry) -> bool:
    return entry.written is not None and time.time() - entry.written.timestamp() > STALE_SECONDS


def _within_grace(*actions: Callable[[], None]) -> None:
    """Run the actions side by side, without a long wait for their ends or their errors."""
    if actions:
        pool = ThreadPoolExecutor(min(len(actions), MOST_DELETIONS))
        wait([pool.submit(each) for each in actions], GRACE_SECONDS)
        pool.shutdown(wait=False, cancel_futures=True)


def _temporary(path: str) -> str:
    """A name for a partial file or batch, which PARTIAL matches."""
    return f".{_short(path)}.hvj-{secrets.token_hex(8)}"


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
