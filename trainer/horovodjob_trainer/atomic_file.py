"""Atomic writes of files."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL_PREFIX = ".partial-"


def check_free_space(directory: Path, size: int) -> None:
    """Raise OSError if the disk of the directory has less free space. On a full disk, HDF5 crashes the process."""
    if shutil.disk_usage(directory).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


@contextmanager
def atomic_write(target: Path, *, writer: str = "", check: Callable[[], None] | None = None) -> Iterator[Path]:
    """A temporary path that replaces `target` when the block ends and its content is on the disk.

    Processes that can write to the same target at the same time have a different `writer`. `check` is called
    immediately before the replacement and can raise an exception to prevent it.
    """
    name = f"{writer}-{target.name}" if writer else target.name  # with the same suffix, which Keras reads
    path = target.with_name(f"{PARTIAL_PREFIX}{name}")
    try:
        yield path
        with path.open("rb+") as file:  # an SMB server flushes only files that are open for writing
            os.fsync(file.fileno())
        if check is not None:
            check()
        os.replace(path, target)
    except BaseException:
        with suppress(OSError):  # the first error is the cause
            path.unlink()
        raise
