"""Check the Markdown pages: long lines, commands, links, and figures quoted from docs/performance.md.

    python tests/stages/pages.py [--wrap]

With --wrap, it first wraps the paragraphs and list items that have a longer line. Code and tables stay as they are.
A page quotes a figure as a link to the section that has it: [21.8 ms](performance.md#load).
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAXIMUM = 120
FIGURES = ROOT / "docs" / "performance.md"
FIGURE = re.compile(r"\d+(?:[.,]\d+)*(?: ?%| [µm]?s\b| [kMG]?B\b| min\b)?")
FENCE = re.compile(r"^\s*(```|~~~)")
CODE_BLOCK = re.compile(r"^\s*```.*?^\s*```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
COMMAND = re.compile(r"(?:python3? -m|(?:mpirun|kubectl|helm|hvj|az|docker|git|pip) [a-z-]+) ")
TWO_COMMANDS = re.compile(r"(?<!\S)(python -m horovodjob_trainer|hvj|kubectl|helm) [^|;&#]*(?<=[^|;&#] )\1 ")
HEADING = re.compile(r"^#+ +(.*?) *$")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
# A word is not broken within code, and none begins a line that would make it an item, a heading or a row.
WORD = re.compile(r"(?:`[^`]*`|[^\s`]|`)+")
NO_BEGINNING = re.compile(r"^(?:[-*+]|\d+[.)]|#+|[|>].*)$")


def main() -> int:
    """Print a line for each violation. Returns 1 if there is one."""
    pages = list(_pages())
    if "--wrap" in sys.argv[1:]:
        for page in pages:
            page.write_text("".join(wrapped(page.read_text())))
    violations = [
        violation for page in pages for violation in (*_long_lines(page), *_joined_commands(page), *_wrong_links(page))
    ]
    print(*violations, sep="\n", end="\n" if violations else "")
    return 1 if violations else 0


def _pages() -> Iterator[Path]:
    done = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [ROOT / path for path in done.stdout.splitlines()] if done.returncode == 0 else sorted(ROOT.rglob("*.md"))
    return (page for page in found if page.exists() and ".venv" not in page.parts)


def wrapped(text: str) -> Iterator[str]:
    """The lines of a page. A paragraph or item with a line that is too long is filled again."""
    for passage, is_prose in _passages(text):
        if is_prose and any(map(_is_long, passage)):
            yield _filled(passage)
        else:
            yield from passage


def _long_lines(page: Path) -> Iterator[str]:
    at = 1
    for passage, is_prose in _passages(page.read_text()):
        for number, line in enumerate(passage, at):
            if is_prose and _is_long(line):
                length = len(line.rstrip("\n"))
                yield f"{_name(page)}:{number}: {length} characters: run `python tests/stages/pages.py --wrap`"
        at += len(passage)


def _joined_commands(page: Path) -> Iterator[str]:
    """Commands that have become prose, or one line of code, when somebody has wrapped a page."""
    at = 1
    for passage, is_prose in _passages(page.read_text()):
        text = " ".join(passage).lstrip()
        if is_prose and COMMAND.match(text):
            yield f"{_name(page)}:{at}: a command in prose: put commands into a block of code, one a line"
        elif not is_prose and not text.startswith(("|", "<")) and TWO_COMMANDS.search(text):
            yield f"{_name(page)}:{at}: two commands in one line of code"
        at += len(passage)


def _wrong_links(page: Path) -> Iterator[str]:
    """Links to files or headings that do not exist, and figures that their section does not contain."""
    for text, target in LINK.findall(CODE_BLOCK.sub("", page.read_text())):
        if "://" in target or target.startswith(("mailto:", "$")):
            continue
        name, _, anchor = target.partition("#")
        found = page.parent / name if name else page
        if not found.exists():
            yield f"{_name(page)}: the link to {target} has no file"
        elif anchor and found.suffix == ".md":
            section = _sections(found).get(anchor)
            if section is None:
                yield f"{_name(page)}: the link to {target} has no heading"
            elif found.resolve() == FIGURES and page != FIGURES:
                measured = set(FIGURE.findall(section))
                for figure in (figure for figure in FIGURE.findall(text) if figure not in measured):
                    yield f"{_name(page)}: {figure} is not in {target}, which it quotes"


@cache
def _sections(page: Path) -> dict[str, str]:
    """The text of each section and its subsections, by the anchor of its heading as GitHub makes it."""
    sections: dict[str, str] = {}
    open_sections: list[tuple[int, str]] = []
    for passage, is_prose in _passages(page.read_text()):
        for line in passage:
            if not is_prose and (heading := HEADING.match(line)) and len(passage) == 1:
                level, anchor = line.index(" "), _anchor(heading[1])
                open_sections = [*(one for one in open_sections if one[0] < level), (level, anchor)]
                sections.setdefault(anchor, "")
            for _, anchor in open_sections:
                sections[anchor] += line
    return sections


def _anchor(heading: str) -> str:
    plain = LINK.sub(r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _passages(text: str) -> Iterator[tuple[list[str], bool]]:
    """Consecutive lines, and whether they are a paragraph or a list item: not code, a table, a heading or blank."""
    passage: list[str] = []
    in_code, in_item = False, False
    for line in text.splitlines(keepends=True):
        if in_code:
            yield [line], False
            in_code = not FENCE.match(line)
            continue
        is_code = bool(FENCE.match(line)) or (line.startswith("    ") and not passage and not in_item)
        is_prose = bool(line.strip()) and not is_code and not line.lstrip().startswith(("|", "#", "<", "!["))
        if passage and (not is_prose or ITEM.match(line)):
            yield passage, True
            passage = []
        if is_prose:
            passage.append(line)
            in_item = (in_item and line.startswith(" ")) or bool(ITEM.match(line))
        else:
            yield [line], False
            in_code = bool(FENCE.match(line))
            # A heading, a table or a picture ends a list: what is indented below it is code and not part of an item.
            in_item = in_item and (not line.strip() or line.startswith(" "))
    if passage:
        yield passage, True


def _is_long(line: str) -> bool:
    """Whether a line is longer than the maximum and has a place where it can be broken."""
    return len(line.rstrip("\n")) > MAXIMUM and len(WORD.findall(ITEM.sub("", line))) > 1


def _filled(passage: list[str]) -> str:
    marker = ITEM.match(passage[0])
    indent = marker[0] if marker else re.match(r"\s*", passage[0])[0]  # type: ignore[index]
    words: list[str] = []
    for word in WORD.findall(" ".join(passage)[len(indent) :]):
        if words and NO_BEGINNING.match(word):
            words[-1] += f"\0{word}"
        else:
            words.append(word.replace(" ", "\0").replace("\n", ""))
    filled = textwrap.fill(
        " ".join(words),
        MAXIMUM,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace("\0", " ") + "\n"


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
