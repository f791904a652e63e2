"""The check of the Markdown pages: which lines are prose, and may be wrapped, and which are code."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages import pages
from stages.pages import MAXIMUM, wrapped

WORDS = "word " * 40
COMMANDS = f"    python -m program --first {WORDS.strip()}\n    python -m program --second\n"
CODE, TABLE = f"```sh\necho {WORDS}\n```\n", f"| a | b |\n| --- | --- |\n| {WORDS} | 1 |\n"


@pytest.mark.parametrize("between", ["## A heading", "| a | table |", "A paragraph."])
def test_commands_after_a_list_stay_as_they_are(between: str) -> None:
    page = f"- An item\n  of two lines.\n\n{between}\n\n{COMMANDS}\nA paragraph.\n"
    assert "".join(wrapped(page)) == page


def test_code_tables_and_headings_keep_their_long_lines() -> None:
    page = f"{COMMANDS}\n# {WORDS}\n\n{CODE}\n{TABLE}\n- An item.\n\n  ```\n  {WORDS}\n  ```\n"
    assert "".join(wrapped(page)) == page


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A list:\n\n- An item.\n\n    kubectl get pods\n    kubectl get jobs\n", "a command in prose"),
        ("python -m program --first\npython -m program\n", "a command in prose"),
        ("```sh\nkubectl get pods kubectl get jobs\n```\n", "two commands in one line of code"),
        (COMMANDS, None),
        ("```sh\nkubectl get pods && kubectl get jobs\nhvj run -- hvj-like\n```\n", None),
        ("The command `kubectl get pods` prints them.\n", None),
    ],
)
def test_commands_that_were_joined_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str | None
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text)
    found = "".join(pages._joined_commands(tmp_path / "page.md"))
    assert (problem in found) if problem else not found


def test_an_item_is_wrapped_with_its_indentation_and_the_next_item_is_not_changed() -> None:
    lines = "".join(wrapped(f"- {WORDS}\n  end\n\n  {WORDS}\n- next\n")).splitlines()
    assert lines[0].startswith("- word")
    assert [line for line in lines[1:-1] if line and not line.startswith("  word") and line != "  end"] == []
    assert lines[-1] == "- next"
    assert max(map(len, lines)) <= MAXIMUM


def test_no_line_is_broken_within_code_or_where_the_next_one_would_begin_an_item() -> None:
    item = "".join(wrapped(f"{'x' * (MAXIMUM - 7)} before 2. {WORDS}\n")).splitlines()
    assert item[1].startswith("before 2. word")
    assert "`kubectl get hvj`" in "".join(wrapped(f"{'x' * (MAXIMUM - 12)} `kubectl get hvj` {WORDS}\n"))
