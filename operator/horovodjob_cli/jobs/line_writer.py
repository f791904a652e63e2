"""The output of a job on standard output: whole lines, and on a terminal the state of a progress bar."""

import shutil
import sys

from horovodjob_cli.jobs.log_lines import last_state
from horovodjob_cli.terminal_text import escaped, escaped_output

ERASE = "\r\x1b[K"


def harmless(line: bytes) -> str:
    """A line as a terminal shows it at its end, without commands for the terminal except colors."""
    return escaped_output(last_state(line).decode(errors="replace"))


class LineWriter:
    """Writes lines as they arrive. `raw` writes the bytes of the program."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._is_terminal = sys.stdout.isatty()
        self._has_state = False

    def line(self, data: bytes, prefix: str = "") -> None:
        """A complete line."""
        self.clear()
        text = data if self._raw else harmless(data).encode()
        sys.stdout.buffer.write(prefix.encode() + text + b"\n")
        sys.stdout.buffer.flush()

    def state(self, data: bytes, prefix: str = "") -> None:
        """The state of a progress bar in a line that has not ended; the next line or state replaces it."""
        if self._raw or not self._is_terminal:
            return
        text = f"{prefix}{escaped(data.decode(errors='replace'))}"
        sys.stdout.write(f"{ERASE}{text[: shutil.get_terminal_size().columns - 1]}")
        sys.stdout.flush()
        self._has_state = True

    def clear(self) -> None:
        """Erase the state of a progress bar."""
        if self._has_state:
            sys.stdout.write(ERASE)
            sys.stdout.flush()
            self._has_state = False
