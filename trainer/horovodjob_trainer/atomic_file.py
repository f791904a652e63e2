"""Files that are whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL_PREFIX = ".partial-"


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A path to write to that becomes `target` in one step once everything is on the disk."""
    path = target.with_name(f"{PARTIAL_PREFIX}{target.name}")  # Keras looks at the suffix
    try:
        yield path
        with path.open("rb+") as file:  # an SMB server flushes only what is open for writing
            os.fsync(file.fileno())
        os.replace(path, target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
