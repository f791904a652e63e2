"""Output of programs is shown as a terminal shows it, whatever they write, in time in proportion to it."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob.escaping import COLOR
from horovodjob.terminal import Terminal, rows

MOVES = ["\r", "\b", "\t", "\x1b[A", "\x1b[9A", "\x1b[2K", "\x1b[K", "\x1b[J", "\x1b[99C", "\x1b[1;2;3A"]
COLORS = ["\x1b[32m", "\x1b[0m", "\x1b[38;5m", "\x1b[²m", "\x1b[" + "9" * 5000 + "m"]
OTHERS = ["\x1b", "\x1b[", "\x1b[?3h", "\x1b#8", "\x1b]0;", "\x07", "\x9b", "\u0301", "\u202e", "\udc80"]
SEQUENCES = [*MOVES, *COLORS, *OTHERS, "\n", "a", "loss 0.5", "━", "東", "👩\u200d🔬", "<b>"]
OUTPUTS = st.text() | st.lists(st.sampled_from(SEQUENCES), max_size=60).map("".join)
MIB = 1 << 20


def keras(step: int, width: int = 80) -> str:
    """A state of the default bar of Keras 3, which ends the one before with backspaces and a carriage return."""
    bar = "\x1b[32m" + step * "━" + "\x1b[0m\x1b[37m" + (20 - step) * "━" + "\x1b[0m"
    state = f"\x1b[1m{step:2}/20\x1b[0m {bar} \x1b[1m{20 - step:2}s\x1b[0m 9ms/step - loss: {1 / step:.4f}"
    return f"{width * chr(8)}\r{state}"


def plain(text: str) -> list[str]:
    return [COLOR.sub("", row) for row in Terminal().line(text)]


def test_the_bar_of_keras_is_its_last_state() -> None:
    bar = "".join(keras(step) for step in range(1, 21))
    assert rows(f"Epoch 1/2\n{bar}\nEpoch 2/2\n{bar}") == [
        "Epoch 1/2",
        f"20/20 {20 * '━'}  0s 9ms/step - loss: 0.0500",
        "Epoch 2/2",
        f"20/20 {20 * '━'}  0s 9ms/step - loss: 0.0500",
    ]
    assert "\x1b[0;32m━" in Terminal().line(bar)[0], "the color of the bar"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0%\r50%\r100%", "100%"),
        ("0%\r100%\r", "100%"),
        ("a long state\rshort", "shortg state"),
        ("a long state\r\x1b[Kshort", "short"),
        ("a long state\x1b[2K\rshort", "short"),
        ("abc\b\bX", "aXc"),
        ("dos\r", "dos"),
        ("\x1b[?25l 10%\r\x1b[?25h100%", "100%"),
        ("\x1b]0;title\x07epoch 1", "epoch 1"),
        ("\x1b]8;;https://a.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;YQ==\x07 0%\r", "^[]52;c;YQ==^G 0%"),
        ("0%\r東京 100% ⚡️ done", "東京 100% ⚡ done"),
        ("\r" + 5000 * "x" + "\b", 5000 * "x" + "^H"),
        ("a\tb", "a\tb"),
        ("0%\ra\tb", "a%      b"),
        ("model\u202egnp.exe", "model\\u202egnp.exe"),
        ("", ""),
    ],
)
def test_a_line_is_what_a_terminal_shows(written: str, shown: str) -> None:
    assert plain(written) == [shown]


def test_the_state_of_a_bar_is_known_before_its_line_ends_and_within_a_sequence() -> None:
    terminal = Terminal()
    whole = keras(3) + keras(10)
    for end in range(len(keras(3)), len(whole) + 1):
        shown = [COLOR.sub("", row) for row in terminal.shown(whole[:end])]
        assert len(shown) == 1
        assert "\x1b" not in shown[0]
    assert shown == [f"10/20 {20 * '━'} 10s 9ms/step - loss: 0.1000"]
    assert terminal.line("next") == ["next"]


def nested_bars() -> str:
    """Two bars of tqdm, one in the other, as it writes them into a file."""
    outer, inner = "outer {}/2", "inner {}/3"
    text = "\r" + outer.format(0)
    for epoch in (1, 2):
        for step in (1, 2, 3):
            text += f"\n\r{inner.format(step)}\x1b[A"
        text += f"\r{outer.format(epoch)}"
    return text + "\n\n"


def test_nested_bars_are_two_rows() -> None:
    text = f"begin\n{nested_bars()}end"
    shown = rows(text)
    assert (shown[0], shown[-3:]) == ("begin", ["outer 2/2", "inner 3/3", "end"])
    assert len(shown) <= 5, shown


def test_rows_that_can_change_are_held_and_come_again_at_the_end() -> None:
    terminal = Terminal()
    assert terminal.line("outer 0/2") == ["outer 0/2"]
    assert terminal.line("inner 1/3\x1b[A\router 1/2") == []
    assert terminal.shown("inner 2/3") == ["outer 1/2", "inner 2/3"]
    assert terminal.shown("") == ["outer 1/2", "inner 1/3"]
    assert terminal.line("inner 3/3") == ["outer 1/2"]
    assert terminal.line("a") == ["inner 3/3"]
    found = [row for line in "bcdef" for row in terminal.line(line)]
    assert found == list("abcdef"), "lines that nothing writes over are not held"


@given(OUTPUTS)
def test_any_output_is_text_with_colors(text: str) -> None:
    terminal = Terminal()
    found = [row for line in text.split("\n") for row in terminal.line(line)]
    found += terminal.shown(text.replace("\n", " "))
    found += terminal.rest()
    for row in found:
        assert not set(COLOR.sub("", row)) & set("\x1b\x9b\x07\r\b\n\u202e")


@pytest.mark.parametrize(
    "line",
    [
        lambda size: "x" * size,
        lambda size: keras(7) * (size // len(keras(7))),
        lambda size: "\x1b[" * (size // 2),
        lambda size: "\x1b]0;" * (size // 4),
        lambda size: "x\b" * (size // 2),
        lambda size: ("\r" + 1000 * "a" + 700 * "\x1b[K" + "\n") * (size // 3100),
        lambda size: ("\r" + 300 * "\x1b[2000Cx\r\x1b[K" + "\n") * (size // 3900),
        lambda size: ("\r" + "a" + 2000 * "\u0301" + "\n") * (size // 2002),
        lambda size: ("\r" + 2000 * "\t" + "\n") * (size // 2002),
        lambda size: ("x" + 600 * "\x1b[50A" + "\n") * (size // 3002),
    ],
)
def test_the_time_is_in_proportion_to_the_output(line: Callable[[int], str]) -> None:
    def seconds(size: int) -> float:
        text = line(size)
        begin = time.process_time()
        rows(text)
        return time.process_time() - begin

    small = min(seconds(MIB // 16) for _ in range(2))
    assert seconds(MIB // 2) < 3 * 8 * small + 0.5
    assert small < 1
