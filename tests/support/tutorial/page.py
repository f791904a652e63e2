"""The commands of a documentation page, in order."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# An item of a list has its blocks indented.
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of the page, and its standard output."""

    command: str
    output: str


def blocks(page: Path, language: str, section: str = "") -> list[str]:
    """The fenced blocks of this language, in the whole page or in the section with this heading of the second level."""
    text = page.read_text()
    if section:
        (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, found, block in FENCE.findall(text) if found == language]


def commands(page: Path) -> list[str]:
    """The commands of the page: lines of its sh blocks, joined after a backslash."""
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def run(page: Path, directory: Path, environment: Mapping[str, str]) -> Iterator[Ran]:
    """Runs each command of the page in a directory, and ends with CalledProcessError at one that fails.

    Standard error is the caller's own.
    """
    for command in commands(page):
        yield Ran(command, run_script(command, directory, environment))


def run_script(script: str, directory: Path, environment: Mapping[str, str]) -> str:
    """The standard output of a script. Raises CalledProcessError if one of its commands fails."""
    # Where a command before `&&` fails, bash continues with the next line.
    shell = ["bash", "-euo", "pipefail", "-c", script.replace(" && ", "\n")]
    return subprocess.run(shell, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
