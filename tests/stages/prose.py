"""Check the words of prose and the sizes of Python files against words.toml."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = Path(__file__).with_name("words.toml")
MAXIMUM_LINES = 500


def main() -> int:
    """Print a line for each violation. Returns 1 if there is one."""
    rules = tomllib.loads(RULES.read_text())
    words = [(re.compile(rf"\b{word}\b", re.IGNORECASE), better) for word, better in rules["words"].items()]
    violations: list[str] = []
    for path in _tracked_files():
        violations += _wrong_words(path, words)
        if path.endswith(".py"):
            violations += _excess_lines(path)
    print(*violations, sep="\n", end="\n" if violations else "")
    return 1 if violations else 0


def _wrong_words(path: str, words: list[tuple[re.Pattern[str], str]]) -> Iterator[str]:
    for line, text in _prose(path):
        for pattern, better in words:
            for match in pattern.finditer(text):
                at = line + text.count("\n", 0, match.start())
                yield f"{path}:{at}: {match.group()}: write {better}"


def _excess_lines(path: str) -> Iterator[str]:
    lines = len((ROOT / path).read_text().splitlines())
    if lines > MAXIMUM_LINES:
        yield f"{path}:{lines}: {lines} lines: split the file, the limit is {MAXIMUM_LINES}"


def _prose(path: str) -> Iterator[tuple[int, str]]:
    """First line and text of each passage: all of a Markdown file, comments and strings of a Python file."""
    source = (ROOT / path).read_text()
    if path.endswith(".md"):
        yield 1, source
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _tracked_files() -> list[str]:
    done = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]
    found = [*ROOT.rglob("*.md"), *ROOT.rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in found if ".venv" not in path.parts)


if __name__ == "__main__":
    sys.exit(main())
