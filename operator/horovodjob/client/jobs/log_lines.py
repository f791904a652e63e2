"""Lines of a container's log: cut from parts of bytes, and without those that a connection sends again. Pure."""

import sys
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache

# Lines that are remembered, because a next connection can send them again; they take about 150 bytes each.
REMEMBERED_LINES = 20_000
# By how much the clock of one stream can be behind that of the other.
OVERLAP_SECONDS = 5
SECOND = 1_000_000_000
# What a terminal shows of a line that has not ended is at its end.
STATE_BYTES = 16 << 10
# What remains of a line that is longer than a limit.
FIRST_BYTES = 64 << 10
CUT = b" [...] "


class LineBuffer:
    """Cuts the parts of a stream into lines; takes time in proportion to the bytes, also for one long line.

    With `longest`, of a longer line only its beginning and so many bytes of its end are held. `is_stamped`: lines
    begin with a time and a blank.
    """

    def __init__(self, *, longest: int = sys.maxsize, is_stamped: bool = False) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._longest, self._is_stamped = longest, is_stamped

    def lines(self, part: bytes) -> list[bytes]:
        """The lines that end in this part, without their newlines."""
        first, *others = part.split(b"\n")
        self._append(first)
        if not others:
            return []
        found = [self.rest, *(self._cut(each) for each in others[:-1])]
        self._parts, self._size = [], 0
        self._append(others[-1])
        return found

    @property
    def rest(self) -> bytes:
        """The line that has not ended yet."""
        self._parts = [b"".join(self._parts)]
        return self._cut(self._parts[0])

    @property
    def state(self) -> bytes:
        """The end of the line that has not ended yet, with the last states of a progress bar if it is one."""
        found: list[bytes] = []
        size = 0
        for part in reversed(self._parts):
            found.append(part[-STATE_BYTES:])
            size += len(part)
            if size >= STATE_BYTES:
                break
        state = b"".join(reversed(found))
        if size < self._size or len(state) < size:
            return state[state.find(b"\r") + 1 :]
        return state.partition(b" ")[2] if self._is_stamped else state

    def _append(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > FIRST_BYTES + 2 * self._longest:
            whole = b"".join(self._parts)
            self._parts = [whole[:FIRST_BYTES], whole[-self._longest :]]
            self._size = sum(map(len, self._parts))

    def _cut(self, line: bytes) -> bytes:
        """The line, a long one without its middle, whatever its parts were: a next connection sends other parts."""
        is_long = len(line) >= FIRST_BYTES + self._longest
        return line[:FIRST_BYTES] + CUT + line[-self._longest :] if is_long else line


def is_bar(line: bytes) -> bool:
    """Whether a line that has not ended is written over itself."""
    return b"\r" in line.rstrip(b"\r")


class LogPosition:
    """The place in a log with timestamps up to which it has been read, over any number of connections.

    A log is in the order in which its lines were written. Their timestamps are not: each stream of the container has
    its own, and one read can give many lines the same. So a line that comes again is known by timestamp and text.
    """

    def __init__(self, *, begins_at_tail: bool = False) -> None:
        self._lines: deque[tuple[int, int]] = deque()
        # Times of lines that were read and are not remembered any more are not later than this.
        self._forgotten = 0
        self._begins_at_tail = begins_at_tail
        self._expected: Counter[int] = Counter()
        self._is_past_forgotten = True

    @property
    def is_at_start(self) -> bool:
        """Whether no line has been read."""
        return not self._lines

    @property
    def since(self) -> str | None:
        """The time, in seconds as the API has it, from which a next connection sends all lines that are missing.

        None, for all lines, while all are remembered: then a clock that was set back hides none.
        """
        if not self._forgotten:
            return None
        lowest = min(moment for moment, _ in self._lines) // SECOND - OVERLAP_SECONDS
        return f"{datetime.fromtimestamp(max(lowest, 0), UTC):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def is_complete(self) -> bool:
        """Whether this connection has sent all lines again that it should."""
        return not self._expected

    def connect(self) -> None:
        """A next connection begins, which sends the lines `since`."""
        self._expected = Counter(key for _, key in self._lines)
        self._is_past_forgotten = False

    def new_line(self, stamped: bytes) -> bytes | None:
        """The text of a line without its timestamp; None if an earlier connection has sent it."""
        stamp, _, text = stamped.partition(b" ")
        moment, key = moment_of(stamp), hash(stamped)
        if moment is None:  # a message of the kubelet
            moment, text = self._lines[-1][0] if self._lines else 0, stamped
        if self._expected:
            if count := self._expected.get(key):
                self._expected[key] = count - 1
                if count == 1:
                    del self._expected[key]
                return None
            if not self._is_past_forgotten and moment <= self._forgotten:
                return None
            self._is_past_forgotten = True
        self._remember(moment, key)
        return text

    def _remember(self, moment: int, key: int) -> None:
        if self._begins_at_tail:  # those before it were never read, and are not missing
            self._forgotten, self._begins_at_tail = moment + OVERLAP_SECONDS * SECOND, False
        self._lines.append((moment, key))
        if len(self._lines) > REMEMBERED_LINES:
            self._forgotten = max(self._forgotten, self._lines.popleft()[0])


def moment_of(stamp: bytes) -> int | None:
    """Nanoseconds of an RFC 3339 time with any number of digits and any offset; None if it is none."""
    seconds, _, fraction = stamp.partition(b".")
    digits = fraction.rstrip(b"Z")
    offset = b""
    for sign in (b"+", b"-"):
        if sign in digits:
            digits, _, offset = digits.partition(sign)
            offset = sign + offset
            break
    whole = _second(seconds.rstrip(b"Z"), offset)
    if whole is None or (digits and not digits.isdigit()):
        return None
    return whole * SECOND + int(digits[:9].ljust(9, b"0"))


@lru_cache(64)
def _second(text: bytes, offset: bytes) -> int | None:
    if len(text) < 19 or text[10:11] != b"T":
        return None
    try:
        moment = datetime.fromisoformat((text + offset).decode())
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
