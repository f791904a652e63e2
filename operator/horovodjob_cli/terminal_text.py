"""Messages of the command line, and the texts of others in them."""

import sys

from horovodjob.escaping import (
    UNSAFE,
    escaped,
    escaped_data,
    escaped_output,
    escaped_stream,
    json_escaped,
)

__all__ = ["UNSAFE", "escaped", "escaped_data", "escaped_output", "escaped_stream", "json_escaped", "message"]


def message(text: str, end: str = "\n") -> None:
    """Write a message for the user to standard error, which can have names and sentences of others."""
    sys.stderr.write(f"{escaped(text)}{end}")
    sys.stderr.flush()
