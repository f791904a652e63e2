"""What an operation shows while it runs: messages on standard error, and the state of transfers."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from horovodjob.escaping import escaped

# How a user interface names the arguments of this library in its sentences.
wording: Callable[[str], str] = str


def message(text: str, end: str = "\n") -> None:
    """Write a message for the user to standard error, which can have names and sentences of others."""
    sys.stderr.write(f"{escaped(wording(text))}{end}")
    sys.stderr.flush()


class Transfer:
    """The state of a transfer of files, which nobody sees."""

    def plan(self, files: int, size: int) -> None:
        """Begin to show a transfer of several files."""

    def progress(self, path: str, done: int, total: int) -> None:
        """Show the state of a file."""


class Display:
    """Shows messages, unless it is quiet, and no transfers."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def message(self, text: str) -> None:
        """Show what the user can do without."""
        if not self.quiet:
            message(text)

    def transfer(self) -> AbstractContextManager[Transfer]:
        """Show a transfer until it ends."""
        return nullcontext(Transfer())
