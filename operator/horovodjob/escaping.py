"""Text of others for a terminal: names, messages and output cannot control the terminal of the reader. Pure.

A terminal takes control characters for commands: they write to the clipboard (OSC 52), set titles, move the cursor and
erase lines. Characters that change the direction of text show other words than those that are there.
"""

import json
import re
from typing import Any

# C0 (without line feed) and DEL, C1, line separators, bidirectional controls, invisible characters, lone surrogates.
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# Select Graphic Rendition (ECMA-48): colors and weight of characters, and nothing else.
COLOR = re.compile(r"(\x1b\[[0-9;:]*m)")
RESET = "\x1b[0m"


def escaped(text: str) -> str:
    """The text with each unsafe character shown as kubectl does, `^[` for escape and `\\r`; line feeds remain."""
    return UNSAFE.sub(_shown, text)


def json_escaped(text: str) -> str:
    """JSON in which unsafe characters are escape sequences, so that it has the same data."""
    return UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def escaped_data(data: Any) -> Any:
    """JSON data with the texts of its keys and values escaped."""
    match data:
        case str():
            return escaped(data)
        case list():
            return [escaped_data(each) for each in data]
        case dict():
            return {escaped_data(key): escaped_data(value) for key, value in data.items()}
    return data


def escaped_output(line: str) -> str:
    """A line of a program's output: tabs and colors remain, and the colors end with the line."""
    parts = COLOR.split(line)
    text = "".join(part if index % 2 else _with_tabs(part) for index, part in enumerate(parts))
    return text if len(parts) == 1 else f"{text}{RESET}"


def escaped_stream(text: str) -> str:
    """A part of a program's output, as of `escaped_output`; the ends of lines remain, also those of progress bars."""
    return "".join(part if part in "\r\n" else escaped_output(part) for part in re.split("([\r\n])", text))


def shortened(text: str, length: int = 48) -> str:
    """One line of at most this length, with the beginning and the end of a longer text."""
    line = " ".join(text.split())
    begin = (length - 1) // 2
    return line if len(line) <= length else f"{line[:begin]}…{line[begin + 1 - length :]}"


def _with_tabs(text: str) -> str:
    return "\t".join(map(escaped, text.split("\t")))


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in "\t\r":
        return {"\t": "\\t", "\r": "\\r"}[found[0]]
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
