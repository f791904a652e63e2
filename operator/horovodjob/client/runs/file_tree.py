"""A directory by contents, on a volume of the job: files in `code/files`, lists in `code/trees`, both as <sha256>.

A run sends the files that no run before it has sent. Each node makes a directory of its own from the list. Files that
were sent in a batch are in a directory of `code/files`: `code/places/<sha256 of the list>` has it, line by line.
"""

import contextlib
import hashlib
import json
import os
import secrets
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from horovodjob.client.runs.directory import CodeFile
from horovodjob.command_line import shell_text

PLAIN = frozenset(string.ascii_letters + string.digits + "_./+=@,-")
FILES, TREES, PLACES = "code/files", "code/trees", "code/places"
# A file that was written so recently can change again without another time.
RECENT_SECONDS = 2
LARGE_FILE = 1 << 20  # smaller files are read faster than they are remembered
MOST_DIGESTS = 10_000


@dataclass(frozen=True, slots=True)
class FileTree:
    """The list of a directory's files, and their sources by the SHA-256 of their contents."""

    listed: str
    sources: Mapping[str, Path]

    @property
    def name(self) -> str:
        """The name of the list on the volume."""
        return hashlib.sha256(self.listed.encode()).hexdigest()

    def places(self, directories: Mapping[str, str]) -> str:
        """The directory of `code/files` with each file of the list, in its order; no text if none is in one."""
        places = [directories[line.partition(" ")[0]] for line in self.listed.splitlines()]
        return "".join(f"{place}\n" for place in places) if any(places) else ""


def file_tree(files: Sequence[CodeFile]) -> FileTree:
    """The files as they are now; only those that changed since the last run are read. Raises OSError."""
    lines, sources = [], {}
    digests = Digests()
    for file in files:
        digest = digests.of(file.source)
        lines.append(f"{digest} {'x' if file.is_executable else '-'} {_escaped(file.path)}\n")
        sources[digest] = file.source
    digests.save()
    return FileTree("".join(lines), sources)


def _escaped(path: str) -> str:
    """The path for `printf %b`: one word of ASCII, whatever bytes its names have."""
    return "".join(chr(byte) if chr(byte) in PLAIN else f"\\0{byte:03o}" for byte in os.fsencode(path))


def unpack_command(tree: FileTree, volume: str, directory: str) -> str:
    """A shell command that makes the directory from the files on the mounted volume.

    Every job with the volume can write there, so the list and the copy of each file must have the digest of their name.
    The places need none: they only say where a file is.
    """
    return shell_text(
        f"code={volume}/code\n"
        "refuse() {\n"
        '    echo "$1 on the volume has other contents than this run sent: delete it, and run again" >&2\n'
        "    exit 1\n"
        "}\n"
        f'list=$(cat "$code/trees/{tree.name}" && echo _) && list=${{list%_}} || exit 1\n'
        f'[ "$(printf %s "$list" | sha256sum)" = "{tree.name}  -" ] || refuse "{TREES}/{tree.name}"\n'
        f'places="$code/places/{tree.name}" && [ -f "$places" ] || places=/dev/null\n'
        'printf %s "$list" | while read -r content mode path; do\n'
        "    IFS= read -r place <&3 || place=\n"
        '    file="files/${place:+$place/}$content"\n'
        "    case $path in *\\\\*) path=$(printf '%b_' \"$path\") && path=${path%_} ;; esac &&\n"
        f'    case $path in */*) mkdir -p "{directory}/${{path%/*}}" ;; esac &&\n'
        f'        cp "$code/$file" "{directory}/$path" || exit 1\n'
        f'    [ "$(sha256sum <"{directory}/$path")" = "$content  -" ] || refuse "code/$file"\n'
        f'    [ "$mode" != x ] || chmod +x "{directory}/$path" || exit 1\n'
        'done 3<"$places" || exit 1'
    )


class Digests:
    """SHA-256 of files; those of large files are stored on this machine with size, times and inode, as in Git's index.

    A cache that cannot be read or written costs only time.
    """

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
        if state.st_size >= LARGE_FILE and is_settled and after.st_mtime_ns == state.st_mtime_ns:
            self._known[name], self._is_changed = [*facts, digest], True
        return digest

    def save(self) -> None:
        """Keep the newest digests for the next run."""
        if not self._is_changed:
            return
        newest = dict(list(self._known.items())[-MOST_DIGESTS:])
        new = self._path.with_name(f".{self._path.name}-{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(newest))
            new.replace(self._path)
