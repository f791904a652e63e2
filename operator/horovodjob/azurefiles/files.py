"""Interface for reading the files of a directory tree that grows and changes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

# Called with the path of a file, the transferred bytes and the total bytes.
Progress = Callable[[str, int, int], None]


# Called with the number of files that will be transferred, and their bytes.
Plan = Callable[[int, int], None]


def no_progress(path: str, done: int, total: int) -> None:
    """Shows nothing."""


def no_plan(files: int, size: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory in a listing; `written` is the time of its content, which an upload keeps.

    `identity` is that of a directory, as of `FileStore.lineage`; `is_link` is true of a link to one.
    """

    name: str
    is_directory: bool
    size: int
    modified: datetime | None = None
    written: datetime | None = None
    identity: str = ""
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at one moment: `version` changes with its content, `identity` when another file takes its name."""

    size: int
    version: str
    identity: str


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file and their state; fewer than requested at the end of the file, none beyond it."""

    data: bytes
    state: FileState


class FileStore(Protocol):
    """Where files are read from: a share, or a volume through a pod. Paths are relative, with slashes.

    Every method raises FilesError; FileNotFound and DirectoryNotFound where there is no such file.
    """

    def entries(self, directory: str) -> list[Entry]:
        """The entries of the directory, sorted by name."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory with this path."""
        ...

    def lineage(self, directory: str) -> list[str]:
        """Device and inode, as device:inode, of a directory and of those that contain it; none where no links are."""
        ...

    def state(self, path: str) -> FileState:
        """The current state of the file."""
        ...

    def read(self, path: str, start: int, length: int) -> Part:
        """At most `length` bytes from `start`."""
        ...

    def download_url(self, path: str, expiry: datetime) -> str | None:
        """A link that reads the file without a sign-in until `expiry`; None if the store has no such links."""
        ...


def joined(*parts: str) -> str:
    """The parts as one path without slashes at its ends."""
    return "/".join(part.strip("/") for part in parts if part.strip("/"))
