"""Messages of the command line."""

import sys

from horovodjob.escaping import escaped


def message(text: str, end: str = "\n") -> None:
    """Write a message for the user to standard error, which can have names and sentences of others."""
    sys.stderr.write(f"{escaped(text)}{end}")
    sys.stderr.flush()
