"""What a terminal shows of a program's output, as text: progress bars in their last state, and no commands. Pure.

Programs write bars over themselves with carriage returns, backspaces and movements of the cursor. pyte, which emulates
a terminal, gets such lines, and only what moves the cursor, erases or colors: its cost is in proportion to the text.
"""

import copy
import re
import unicodedata
from functools import lru_cache

import pyte
from pyte import graphics
from pyte.screens import wcwidth

from horovodjob.escaping import COLOR, RESET, escaped, escaped_output

# The last states of a bar: longer lines that are written over themselves begin here.
LAST_CHARACTERS = 4096
COLUMNS = 2048
MOST_ROWS = 50
MOST_MARKS = 4
"""Combining characters in one place."""
OVERWRITTEN = re.compile(r"[\r\x08]|\x1b\[\d{0,4}[A-GJK]")
UP = re.compile(r"\x1b\[(\d{0,4})A")
# Colors (without the colons of ISO 8613-6, which pyte does not read), movements, and what erases to the end or a row.
KEPT = re.compile(r"(\x1b\[(?:\d{0,4}[A-G]|0?J|[02]?K|[0-9;]{0,64}m))")
# Shows nothing: modes, character sets, keypads, titles and links.
INVISIBLE = re.compile(
    r"\x1b\[\?[0-9;]{0,64}[hl]|\x1b\([0AB]|\x1b[=>]|\x1b\](?:[012]|8;[^;\x07\x1b]*);[^\x07\x1b]*(?:\x07|\x1b\\)"
)
UNFINISHED_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]{0,64})?$")
FOREGROUND, BACKGROUND = (
    {name: str(code) for code, name in {**bright, **usual}.items()}
    for usual, bright in ((graphics.FG_ANSI, graphics.FG_AIXTERM), (graphics.BG_ANSI, graphics.BG_AIXTERM))
)


def rows(text: str) -> list[str]:
    """The rows that a terminal shows of a text, without colors."""
    terminal, found = Terminal(), []
    for line in text.split("\n"):
        found += terminal.line(line)
    return [COLOR.sub("", row).rstrip() for row in (*found, *terminal.rest())]


class Terminal:
    """Rows of a stream of lines: text in which unsafe characters are escaped, and colors that end with the row.

    A line is a row, which is finished with the line. Once a program moves the cursor up, as nested bars do, as many
    rows as it moves are held, because they can change.
    """

    def __init__(self) -> None:
        self._screen: _Screen | None = None
        self._steady = 0

    def line(self, text: str) -> list[str]:
        """The rows that are finished with this line, which is given without its line feed."""
        moved = min(sum(int(count or 1) for count in UP.findall(text)), MOST_ROWS)
        if self._screen is None and not moved:
            return [_row(text)]
        text = _last_states(text)
        if _is_long(text):
            return [*self.rest(), escaped_output(text)]
        if self._screen is None or moved >= self._screen.lines:
            self._screen = _Screen(moved + 1, self._screen)
        self._screen.write(f"{_kept(text)}\r\n")
        self._steady = 0 if moved else self._steady + 1
        finished = self._screen.finished()
        return finished + self.rest() if self._steady > self._screen.lines else finished

    def shown(self, text: str) -> list[str]:
        """The rows that are not finished, with what has come of the next line."""
        text = UNFINISHED_SEQUENCE.sub("", text)
        if self._screen is None:
            return [_row(text)] if text else []
        screen = _Screen(self._screen.lines, self._screen)
        screen.write(_kept(_last_states(text))[:COLUMNS])
        return screen.rows()

    def rest(self) -> list[str]:
        """The rows that are not finished, at the end of the stream."""
        screen, self._screen = self._screen, None
        return screen.rows() if screen else []


class _Screen(pyte.Screen):
    """Some rows. Those that leave at the top are kept until they are taken."""

    def __init__(self, lines: int, before: "_Screen | None" = None) -> None:
        super().__init__(COLUMNS, lines)
        self._finished: list[str] = []
        # Rows above the first line, of which only a program that moves there makes something.
        self._unused = lines - 1
        self.cursor.y = lines - 1
        self._stream = pyte.Stream(self)
        if before:
            more = lines - before.lines
            self._unused, self.cursor = before._unused + more, copy.copy(before.cursor)
            self.cursor.y += more
            self.buffer.update({y + more: copy.copy(line) for y, line in before.buffer.items()})

    def write(self, text: str) -> None:
        """Writes text with sequences of `KEPT` and no other."""
        self._stream.feed(text)

    def finished(self) -> list[str]:
        """The rows that have left since the last call."""
        found, self._finished = self._finished, []
        return found

    def rows(self) -> list[str]:
        """The rows of the screen down to the last one with text."""
        found = [self.row(y) for y in range(self.lines)]
        while found and not found[-1]:
            found.pop()
        unused = next((y for y in range(min(self._unused, len(found))) if found[y]), self._unused)
        return found[unused:]

    def row(self, y: int) -> str:
        """A row with its colors."""
        if not (line := self.buffer.get(y)):
            return ""
        seen = [x for x, char in line.items() if char.data.strip() or char.bg != "default" or char.reverse]
        parts, style = [], ""
        for x in range(max(seen, default=-1) + 1):
            char = line[x]
            if (now := _style(*char[1:])) != style:
                parts.append(RESET if style and not now else now)
                style = now
            parts.append(char.data)
        return escaped_output("".join(parts))

    def index(self) -> None:
        """Scrolls at the last row, and keeps the first one."""
        if self.cursor.y == self.lines - 1:
            row = self.row(0)
            if row or not self._unused:
                self._finished.append(row)
            self._unused = max(self._unused - 1, 0)
        super().index()

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Erases what is there: pyte writes a blank into each column."""
        line = self.buffer[self.cursor.y]
        for x in [x for x in line if how == 2 or x >= self.cursor.x]:
            del line[x]

    def erase_in_display(self, how: int = 0, *_: object, **__: object) -> None:
        """Erases to the end of the screen."""
        self.erase_in_line()
        for y in [y for y in self.buffer if y > self.cursor.y]:
            del self.buffer[y]

    def tab(self) -> None:
        """Moves to the next multiple of eight, without a search of all."""
        self.cursor.x = min(self.cursor.x // 8 * 8 + 8, self.columns - 1)


def _row(text: str) -> str:
    """The row of a line that moves the cursor in itself only."""
    text = _last_states(text)
    if not OVERWRITTEN.search(text) or _is_long(text):
        return escaped_output(text)
    screen = _Screen(1)
    screen.write(_kept(text))
    return screen.row(0)


def _last_states(text: str) -> str:
    """A line without what shows nothing; of a long one that is written over itself, the end."""
    text = text.rstrip("\r")
    if len(text) > LAST_CHARACTERS:
        begin = text.find("\r", len(text) - LAST_CHARACTERS)
        text = text[(begin if begin >= 0 else text.rfind("\r")) + 1 :]
    return INVISIBLE.sub("", text)


def _is_long(text: str) -> bool:
    """Whether a line has more columns than the emulation, or is no bar at all."""
    columns = max(len(state) - 2 * state.count("\b") for state in text.split("\r"))
    return columns > COLUMNS or len(text) > LAST_CHARACTERS


def _kept(text: str) -> str:
    """The text for the emulation: with sequences that it keeps, and with others shown as characters."""
    parts = KEPT.split(text)
    return "".join(part if index % 2 else _with_moves(part) for index, part in enumerate(parts))


def _with_moves(text: str) -> str:
    if text.isprintable() and text.isascii():
        return text
    parts = re.split("([\r\b\t])", text)
    return "".join(part if index % 2 else _drawn(escaped(part)) for index, part in enumerate(parts))


def _drawn(text: str) -> str:
    """The text without characters at which pyte stops, such as joiners, and without heaps of combining ones."""
    if text.isascii():
        return text
    found: list[str] = []
    marks = 0
    for char in text:
        is_mark = bool(unicodedata.combining(char))
        marks = marks + 1 if is_mark else 0
        if wcwidth(char) > 0 or (is_mark and marks <= MOST_MARKS):
            found.append(char)
    return "".join(found)


@lru_cache(256)
def _style(fg: str, bg: str, *flags: bool) -> str:
    """The sequence for the attributes of a character; empty without any."""
    codes = [code for code, flag in zip(("1", "3", "4", "9", "7", "5"), flags, strict=True) if flag and code != "5"]
    for name, known, extended in ((fg, FOREGROUND, "38"), (bg, BACKGROUND, "48")):
        if name in known:
            codes += [known[name]] if name != "default" else []
        else:
            codes.append(";".join([extended, "2", *(str(int(name[at : at + 2], 16)) for at in (0, 2, 4))]))
    return f"\x1b[0;{';'.join(codes)}m" if codes else ""
