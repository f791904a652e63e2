"""Text of others cannot control the terminal of the reader."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob.escaping import COLOR, escaped, escaped_data, escaped_output, shortened

KEPT = {"\n", "\u200c", "\u200d"}  # line feed; joiners of scripts and emoji


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;cm0gLXJm\x07", "^[]52;c;cm0gLXJm^G"),
        ("\x1b]0;root@bank\x1b\\", "^[]0;root@bank^[\\"),
        ("50%\r100%", "50%\\r100%"),
        ("a\x08b\x7f\x9b2J", "a^Hb^?\\x9b2J"),
        ("model\u202egnp.exe", "model\\u202egnp.exe"),
        ("a\u2066b\u2069\U000e0041\udc80", "a\\u2066b\\u2069\\U000e0041\\udc80"),
        ("two\nlines of Łódź 東京 👩‍🔬", "two\nlines of Łódź 東京 👩‍🔬"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text())
def test_no_text_has_a_control_character_afterwards(text: str) -> None:
    left = set(escaped(text)) - KEPT
    categories = {unicodedata.category(each) for each in left}
    assert not categories & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(each) for each in left} & {
        *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
    }
    assert escaped(escaped(text)) == escaped(text)


def test_keys_and_values_of_data_are_escaped() -> None:
    assert escaped_data({"\x1b[2J": ["\x07", {"a": 1.5, "b": None}]}) == {"^[[2J": ["^G", {"a": 1.5, "b": None}]}


def test_output_of_programs_keeps_tabs_and_colors_which_end_with_the_line() -> None:
    assert escaped_output("\x1b[1;31mE\x1b[0m\tloss") == "\x1b[1;31mE\x1b[0m\tloss\x1b[0m"
    assert escaped_output("a\tb") == "a\tb"
    assert escaped_output("\x1b[2J\x1b[31mred\x1b]52;c;YQ==\x07") == "^[[2J\x1b[31mred^[]52;c;YQ==^G\x1b[0m"


@given(st.text(alphabet=st.sampled_from("\x1b\x9b\x07[]m0;\\a\tz\r\u202e")))
def test_output_of_programs_has_colors_and_no_other_command(line: str) -> None:
    assert not set(COLOR.sub("", escaped_output(line))) & set("\x1b\x9b\x07\r\u202e")


@given(st.text(), st.integers(3, 60))
def test_a_long_text_has_its_beginning_and_its_end_on_one_line(text: str, length: int) -> None:
    line, found = " ".join(text.split()), shortened(text, length)
    assert len(found) <= length
    if found != line:
        begin, mark, end = found.partition("…") if "…" not in line else (found[: (length - 1) // 2], "…", "")
        assert (mark, len(found)) == ("…", length)
        assert line.startswith(begin)
        assert line.endswith(end)
