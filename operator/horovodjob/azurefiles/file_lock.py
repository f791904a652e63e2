"""A lock on an open file until it is closed, also by the end of the process."""

import os
import sys
from typing import BinaryIO

if sys.platform == "win32":

    def lock(file: BinaryIO) -> None:
        """Lock the file. Raises PermissionError if another process has locked it."""
        import msvcrt

        # The byte is beyond every end, because Windows refuses to write bytes that are locked.
        file.seek(1 << 62)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        finally:
            file.seek(0, os.SEEK_END)

else:

    def lock(file: BinaryIO) -> None:
        """Lock the file. Raises BlockingIOError if another process has locked it."""
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
