"""Atomic writes of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL_PREFIX = ".partial-"


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """A temporary path that replaces `target` when the block ends and its content is on the disk."""
    path = target.with_name(f"{PARTIAL_PREFIX}{target.name}")  # with the same suffix, which Keras reads
    try:
        yield path
        with path.open("rb+") as file:  # an SMB server flushes only files that are open for writing
            os.fsync(file.fileno())
        os.replace(path, target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
