"""The output of a job on standard output: rows as a terminal shows them, and on a terminal the state of a bar."""

import shutil
import sys
from collections import defaultdict

from horovodjob.client.jobs.log_lines import is_bar
from horovodjob.escaping import COLOR
from horovodjob.terminal import Terminal

ERASE = "\r\x1b[K"


class LineWriter:
    """Writes rows as they are finished. `raw` writes the bytes of the program."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._is_terminal = sys.stdout.isatty()
        self._has_state = False
        self._terminals: defaultdict[str, Terminal] = defaultdict(Terminal)

    def line(self, data: bytes, prefix: str = "") -> None:
        """A complete line."""
        self.clear()
        if self._raw:
            sys.stdout.buffer.write(prefix.encode() + data + b"\n")
            sys.stdout.buffer.flush()
        else:
            self._write(prefix, self._terminals[prefix].line(data.decode(errors="replace")))

    def state(self, data: bytes, prefix: str = "") -> None:
        """The state of a progress bar in a line that has not ended; the next line or state replaces it."""
        if self._raw or not self._is_terminal or not is_bar(data):
            return
        rows = self._terminals[prefix].shown(data.decode(errors="replace"))
        text = COLOR.sub("", f"{prefix}{rows[-1] if rows else ''}")
        sys.stdout.write(f"{ERASE}{text[: shutil.get_terminal_size().columns - 1]}")
        sys.stdout.flush()
        self._has_state = True

    def clear(self) -> None:
        """Erase the state of a progress bar."""
        if self._has_state:
            sys.stdout.write(ERASE)
            sys.stdout.flush()
            self._has_state = False

    def end(self) -> None:
        """Writes the rows that could still have changed."""
        self.clear()
        for prefix, terminal in self._terminals.items():
            self._write(prefix, terminal.rest())

    def _write(self, prefix: str, rows: list[str]) -> None:
        sys.stdout.buffer.write("".join(f"{prefix}{row}\n" for row in rows).encode())
        sys.stdout.buffer.flush()
