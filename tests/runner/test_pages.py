"""Long lines of Markdown pages are wrapped, and nothing else of them changes."""

from __future__ import annotations

from stages.pages import MAXIMUM, wrapped

WORDS = "word " * 40
CODE, TABLE = f"```sh\necho {WORDS}\n```\n", f"| a | b |\n| --- | --- |\n| {WORDS} | 1 |\n"


def test_code_tables_and_headings_keep_their_long_lines() -> None:
    page = f"# {WORDS}\n\n{CODE}\n{TABLE}"
    assert "".join(wrapped(page)) == page


def test_an_item_is_wrapped_with_its_indentation_and_the_next_item_is_not_changed() -> None:
    lines = "".join(wrapped(f"- {WORDS}\n  end\n- next\n")).splitlines()
    assert lines[0].startswith("- word")
    assert [line for line in lines[1:-1] if not line.startswith("  word") and line != "  end"] == []
    assert lines[-1] == "- next"
    assert max(map(len, lines)) <= MAXIMUM


def test_no_line_is_broken_within_code_or_where_the_next_one_would_begin_an_item() -> None:
    item = "".join(wrapped(f"{'x' * (MAXIMUM - 7)} before 2. {WORDS}\n")).splitlines()
    assert item[1].startswith("before 2. word")
    assert "`kubectl get hvj`" in "".join(wrapped(f"{'x' * (MAXIMUM - 12)} `kubectl get hvj` {WORDS}\n"))
