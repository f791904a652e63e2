"""Files and directories on disk, with the properties and errors of the service."""

import ctypes
import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.errors import Refusal

# linux/stat.h: AT_FDCWD, STATX_BTIME, and where stx_btime is in struct statx.
_CURRENT_DIRECTORY, _BIRTH_TIME, _BIRTH_TIME_OFFSET = -100, 0x800, 80


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a file or directory."""

    name: str
    is_directory: bool
    size: int
    file_id: int
    created: datetime
    written: datetime
    changed: datetime
    etag: str

    @property
    def last_modified(self) -> str:
        return format_datetime(self.written.replace(microsecond=0), usegmt=True)


def timestamp(moment: datetime) -> str:
    """ISO 8601 with the seven digits that the service writes."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f0Z")


def share_directory(account: Account, share: str) -> Path:
    """Directory of an existing share. Raises Refusal."""
    directory = account.directory / share
    if not directory.is_dir():
        raise Refusal("ShareNotFound")
    return directory


def located(account: Account, share: str, path: str) -> Path:
    """The location on disk of a path in a share; its directory must exist. Raises Refusal."""
    directory = share_directory(account, share)
    parts = [part for part in path.split("/") if part]
    for part in parts[:-1]:
        directory /= part
        if not directory.is_dir():
            raise Refusal("ParentNotFound")
    return directory / parts[-1] if parts else directory


def existing(account: Account, share: str, path: str, *, is_directory: bool) -> Path:
    """The same for an existing file or directory. Raises Refusal."""
    found = located(account, share, path)
    if not found.exists() or found.is_dir() is not is_directory:
        raise Refusal("ResourceNotFound")
    return found


def properties(path: Path) -> Properties:
    """Properties as they are now. Raises Refusal."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise Refusal("ResourceNotFound") from None
    digest = _number(f"{stat.st_ino} {stat.st_mtime_ns} {stat.st_size}")
    created = birth_time(path)
    return Properties(
        name=path.name,
        is_directory=path.is_dir(),
        size=stat.st_size,
        # An inode is reused for the next file; an ID of the service never is.
        file_id=_number(f"{stat.st_ino} {created}") >> 1,
        created=datetime.fromtimestamp(created, UTC),
        written=datetime.fromtimestamp(stat.st_mtime, UTC),
        changed=datetime.fromtimestamp(stat.st_ctime, UTC),
        etag=f'"0x{digest:X}"',
    )


def birth_time(path: Path) -> float:
    """When the file was created, in seconds since 1970, which `os.stat` does not have."""
    buffer = ctypes.create_string_buffer(256)
    failed = ctypes.CDLL(None).statx(_CURRENT_DIRECTORY, os.fsencode(path), 0, _BIRTH_TIME, buffer)
    seconds, nanoseconds = struct.unpack_from("<qI", buffer.raw, _BIRTH_TIME_OFFSET)
    return 0.0 if failed else float(seconds + nanoseconds / 1e9)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def entries(directory: Path, prefix: str) -> Iterator[Properties]:
    """Files and directories with this prefix, by name, without those that are deleted meanwhile."""
    for name in sorted(os.listdir(directory)):
        if name.startswith(prefix):
            try:
                yield properties(directory / name)
            except Refusal:
                continue
