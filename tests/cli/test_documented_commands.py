"""Every command of `hvj` in the pages and examples has the options that the page gives it."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from horovodjob_cli import commands
from support.api_client import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"^#   (.+)$", re.MULTILINE)


def lines() -> Iterator[tuple[str, str]]:
    """Each line of a block of commands, or of the first lines of an example, with its file."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            yield from ((page.name, line) for line in block.replace("\\\n", " ").splitlines())
    for example in EXAMPLES:
        yield from ((example.name, line) for line in HEADER.findall(example.read_text()))


def documented() -> Iterator[tuple[str, list[str]]]:
    """The words of each command of hvj, with the name of its file."""
    for name, line in lines():
        for part in re.split(r" && | \| |; ", line.strip().removeprefix("$ ")):
            if part.startswith("hvj "):
                yield name, shlex.split(re.sub(r" > \S+\s*$", "", part.partition("  #")[0]), comments=True)[1:]


def parse(group: Any, words: list[str]) -> None:
    """Parses a command line and runs nothing. Raises TyperException."""
    context = group.make_context("hvj", list(words))
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, others = context.command.resolve_command(context, rest)
        context = command.make_context(name, others, parent=context)


def test_each_command_of_the_pages_and_examples_is_parsed() -> None:
    found, errors = list(documented()), []
    root = get_command(commands._root())
    for name, words in found:
        try:
            parse(root, words)
        except typer.Exit:  # of --help
            continue
        except typer.TyperException as error:
            errors.append(f"{name}: hvj {' '.join(words)}: {error}")
    assert errors == []
    assert len(found) > 80


def test_an_option_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(typer.TyperException):
        parse(get_command(commands._root()), ["job", "list", "--no-such-option"])
