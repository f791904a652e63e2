"""A log that is read over several connections has each of its lines once, whatever their timestamps are."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob.client.jobs import log_lines
from horovodjob.client.jobs.log_lines import FIRST_BYTES, LineBuffer, LogPosition, is_bar, moment_of

SECOND = 10**9
START = moment_of(b"2026-11-22T12:00:00Z") or 0


def stamp(nanoseconds: int) -> bytes:
    """The time so many nanoseconds after a start, as a kubelet prints it."""
    moment = time.gmtime((START + nanoseconds) // SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{(START + nanoseconds) % SECOND:09}Z".encode()


class Container:
    """A log as a kubelet sends it: all lines that are not before `since`, in the order in which they were written."""

    def __init__(self, lines: list[tuple[int, bytes]]) -> None:
        self.lines = lines

    def sent(self, since: str | None, written: int, *, rotated: int = 0) -> bytes:
        first = (moment_of(since.encode()) or 0) - START if since else 0
        return b"".join(stamp(at) + b" " + text + b"\n" for at, text in self.lines[rotated:written] if at >= first)


def read(container: Container, cuts: list[tuple[int, int]]) -> list[bytes]:
    """The lines of a container over connections: each sees so many lines, and is cut after a share of its bytes."""
    position, found = LogPosition(), []
    for number, (written, permille) in enumerate([*cuts, (len(container.lines), 1000)]):
        if number:
            position.connect()
        data = container.sent(position.since, written)
        data = data[: len(data) * permille // 1000]
        buffer = LineBuffer()
        for start in range(0, len(data), 7):
            found += [
                text for line in buffer.lines(data[start : start + 7]) if (text := position.new_line(line)) is not None
            ]
    return found


TEXTS = st.sampled_from([b"", b"a", b"loss 1", b"2026-11-22T12:00:00Z"])
# Each stream has a clock of its own, which stands still, runs and is set back.
STEPS = st.sampled_from([0, 0, 0, 1, 1000, 10**6, SECOND, -1, -(10**6), -SECOND, -90 * SECOND])


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    clocks = [3600 * SECOND, draw(st.integers(0, 7200 * SECOND))]
    lines = []
    for stream, step, text in draw(st.lists(st.tuples(st.integers(0, 1), STEPS, TEXTS), max_size=40)):
        clocks[stream] = max(clocks[stream] + step, 0)
        lines.append((clocks[stream], text))
    return lines


@given(logs(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), max_size=4))
def test_no_cut_loses_or_repeats_a_line(lines: list[tuple[int, bytes]], cuts: list[tuple[int, int]]) -> None:
    sizes = sorted(size for size, _ in cuts)  # a log only grows
    cuts = [(size, permille) for size, (_, permille) in zip(sizes, cuts, strict=True)]
    assert read(Container(lines), cuts) == [text for _, text in lines]


@pytest.mark.parametrize(("step", "skew"), [(0, 0), (1, SECOND), (10**6, 10**6), (SECOND, 0)])
def test_of_a_long_log_only_the_last_lines_are_remembered(
    monkeypatch: pytest.MonkeyPatch, step: int, skew: int
) -> None:
    monkeypatch.setattr(log_lines, "REMEMBERED_LINES", 100)
    lines = [(3600 * SECOND + number * step - number % 2 * skew, f"line {number}".encode()) for number in range(5000)]
    found = read(Container(lines), [(3000, 999), (4000, 990), (4000, 500)])
    assert found == [text for _, text in lines]


def test_lines_of_a_rotated_file_are_not_expected_for_ever() -> None:
    container = Container([(number, b"same") for number in range(50)])
    position, buffer = LogPosition(), LineBuffer()
    for line in buffer.lines(container.sent(None, 30)):
        position.new_line(line)
    position.connect()
    new = [position.new_line(line) for line in LineBuffer().lines(container.sent(position.since, 50, rotated=25))]
    assert new == [None] * 5 + [b"same"] * 20


def test_the_lines_before_a_tail_are_not_shown_after_a_reconnection() -> None:
    container = Container([(number, str(number).encode()) for number in range(50)])
    position = LogPosition(begins_at_tail=True)
    for line in LineBuffer().lines(container.sent(None, 30, rotated=20)):
        assert position.new_line(line) is not None
    position.connect()
    found = [position.new_line(line) for line in LineBuffer().lines(container.sent(position.since, 50))]
    assert [line for line in found if line is not None] == [str(number).encode() for number in range(30, 50)]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01Z", SECOND),
        ("1970-01-01T00:00:01.5Z", SECOND * 3 // 2),
        ("1970-01-01T02:00:01.000000001+02:00", SECOND + 1),
        ("1969-12-31T22:30:00-01:30", 0),
        ("loss:", None),
        ("", None),
        ("1970-01-01T00:00:0x.5Z", None),
    ],
)
def test_the_time_of_a_line_has_any_digits_and_any_offset(text: str, nanoseconds: int | None) -> None:
    assert moment_of(text.encode()) == nanoseconds


def test_an_unfinished_line_has_the_states_of_its_progress_bar() -> None:
    buffer = LineBuffer(is_stamped=True)
    states = []
    for part in (b"2026-11-22T", b"12:00:00Z ", b"\r 0%", b"\r 5", b"0%\r", b"100%\nnext"):
        buffer.lines(part)
        states.append(buffer.state)
    assert states == [b"", b"", b"\r 0%", b"\r 0%\r 5", b"\r 0%\r 50%\r", b""]
    assert [is_bar(each) for each in states] == [False, False, True, True, True, False]


@pytest.mark.parametrize("size", [701, 16_384, 100_000])
def test_of_a_line_over_the_limit_the_same_bytes_are_held_whatever_its_parts_are(size: int) -> None:
    line, longest = bytes(index % 251 for index in range(400_000)).replace(b"\n", b" "), 100_000
    buffer, found, most = LineBuffer(longest=longest), [], 0
    for begin in range(0, len(line), size):
        found += buffer.lines(line[begin : begin + size])
        most = max(most, sum(map(len, buffer._parts)))
    found += buffer.lines(b"\nnext\n")
    assert found == [line[:FIRST_BYTES] + b" [...] " + line[-longest:], b"next"]
    assert most < 3 * longest + FIRST_BYTES


def test_one_long_line_costs_in_proportion_to_its_length() -> None:
    """No part copies the line so far. Memory is counted, which a busy machine does not change."""
    part, parts = b"\r" + b"x" * (8 << 10), 1024
    buffer = LineBuffer()
    tracemalloc.start()
    try:
        for number in range(parts):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            buffer.lines(part)
            assert buffer.state
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 64 * len(part), f"part {number} copies the line so far"
        assert buffer.lines(b"\n") == [part * parts]
    finally:
        tracemalloc.stop()
