"""The check of the Markdown pages: which lines are prose, and may be wrapped, and which are code."""

from pathlib import Path

import pytest

from stages import pages
from stages.pages import wrapped

LONG = "a word of a line that is longer than a line of a page may be " * 3
COMMANDS = f"    python -m program --first {LONG.strip()}\n    python -m program --second\n"


@pytest.mark.parametrize("between", ["## A heading", "| a | table |", "![a picture](x.svg)", "<br>", "A paragraph."])
@pytest.mark.parametrize("item", ["- An item.", "1. An item.", "- An item\n  of two lines."])
def test_commands_after_a_list_stay_as_they_are(item: str, between: str) -> None:
    page = f"{item}\n\n{between}\n\n{COMMANDS}\nA paragraph.\n"
    assert "".join(wrapped(page)) == page


def test_fenced_code_and_the_code_of_the_first_lines_stay_as_they_are() -> None:
    page = f"{COMMANDS}\n```\n{COMMANDS}```\n\n- An item.\n\n  ```\n  {LONG}\n  ```\n"
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


def test_a_long_paragraph_of_an_item_is_wrapped_with_its_indentation() -> None:
    page = "".join(wrapped(f"- An item.\n\n  {LONG}\n"))
    lines = page.splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 120 for line in lines)
    assert all(line.startswith("  ") for line in lines[2:])
