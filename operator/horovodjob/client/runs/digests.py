"""SHA-256 of files, remembered on this machine by what the file system says of them, as Git remembers them."""

import contextlib
import hashlib
import json
import os
import secrets
import time
from pathlib import Path

# A file that was written so recently can change again without another time.
RECENT_SECONDS = 2
LARGE = 1 << 20  # smaller files are read faster than they are remembered
MOST = 10_000


class Digests:
    """The digests of large files. A cache that cannot be read or written costs only time."""

    def __init__(self) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self._path = Path(home) / "horovodjob" / "digests.json"
        self._now = time.time()
        self._is_changed = False
        self._known: dict[str, list[object]] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._path.read_bytes())
            self._known = found if isinstance(found, dict) else {}

    def of(self, source: Path) -> str:
        """The digest of the file's content. Raises OSError."""
        with source.open("rb") as file:
            state = os.fstat(file.fileno())
            facts: list[object] = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]
            name = str(source.absolute())
            known = self._known.get(name)
            if isinstance(known, list) and known[:-1] == facts:
                return str(known[-1])
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            is_settled = self._now - max(state.st_mtime, state.st_ctime) > RECENT_SECONDS
            after = os.fstat(file.fileno())
        if state.st_size >= LARGE and is_settled and after.st_mtime_ns == state.st_mtime_ns:
            self._known[name], self._is_changed = [*facts, digest], True
        return digest

    def save(self) -> None:
        """Keep the newest digests for the next run."""
        if not self._is_changed:
            return
        newest = dict(list(self._known.items())[-MOST:])
        new = self._path.with_name(f".{self._path.name}-{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(newest))
            new.replace(self._path)
