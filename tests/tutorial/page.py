"""The commands of a page of the documentation, in their order."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of the page, and what it printed on standard output."""

    command: str
    output: str


def blocks(page: Path, language: str) -> list[str]:
    """The page's fenced blocks of this language."""
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


def commands(page: Path) -> list[str]:
    """What a user types, a command each: lines of the page's sh blocks, joined where they end with a backslash."""
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def run(page: Path, directory: Path, environment: Mapping[str, str]) -> Iterator[Ran]:
    """Runs each command of the page in a directory, and ends with CalledProcessError at one that fails.

    Standard error is the caller's own.
    """
    for command in commands(page):
        shell = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(shell, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        yield Ran(command, done.stdout)
