"""The commands in the scenarios of docs/gitops.md, with their output.

RECORD_OUTPUT=1 make gitops    writes the output of this run into the page
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import textwrap
from itertools import chain
from pathlib import Path

from gitops.engine import Delivery, Engine
from support.api_client import ROOT, binary, wait_for

PAGE = ROOT / "docs" / "gitops.md"
# What each engine reports on, which no command for the other one names.
RESOURCES = {"flux": "kustomization", "argocd": "application"}
LINE_LENGTH = 150
# What differs from run to run: hashes of commits, hashes in names, times, ages, files and repetitions.
VARIABLE = (
    r"\b[0-9a-f]{40}\b",
    r"(?:(?<=digits-)|(?<=cifar-))[a-z0-9]{10}\b",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    r"\b(\d+[dhms])+\b",
    r'(?<=")/\S+/\d+(?=")',
    r"\(retried \d+ times\)|Retrying attempt #\d+ at \S+",
)


def assert_documented_output(engine: Engine, title: str, **names: Delivery) -> None:
    """Waits until the commands of an engine in a section of the page have the output that the page shows.

    `names` has the namespaces of the page and the deliveries of the test in their place.
    """
    block = _block(PAGE.read_text(), title, engine.name)
    replaced = {name: delivery.namespace for name, delivery in names.items()}
    if os.environ.get("RECORD_OUTPUT"):
        _record(title, engine.name, _run(engine, block, replaced))
        return
    last = [""]

    def is_as_documented() -> bool:
        last[0] = _run(engine, block, replaced)
        return _comparable(last[0]) == _comparable(block)

    try:
        wait_for(f"the output in the section {title!r}", is_as_documented, seconds=300)
    except AssertionError as error:
        raise AssertionError(f"{error}, which RECORD_OUTPUT=1 writes; the output is\n{last[0]}") from None


def run_documented_commands(after: str, directory: Path, kubeconfig: Path) -> None:
    """Runs the commands of the page after a text in a repository, whose directory is named after its namespace."""
    text = PAGE.read_text().partition(after)[2].partition("```sh\n")[2].partition("```")[0]
    assert text, f"{PAGE.name} has no commands after {after!r}"
    commands = re.sub(r"\btraining\b", directory.name, textwrap.dedent(text)).replace("../horovodjob", str(ROOT))
    path = f"{Path(binary('kubectl')).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
    done = subprocess.run(
        ["bash", "-ec", commands], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _block(page: str, title: str, engine: str) -> str:
    """The commands of an engine in a section, and their output."""
    section = page.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    found = [one for one in re.findall(r"^```\n(\$ .*?)^```$", section, re.M | re.S) if RESOURCES[engine] in one]
    assert len(found) == 1, f"{len(found)} blocks of {engine} in the section {title!r} of {PAGE.name}"
    return str(found[0])


def _run(engine: Engine, block: str, names: dict[str, str]) -> str:
    """The commands of a block with their output now."""
    return "".join(chain.from_iterable((f"$ {one}\n", _output(engine, one, names)) for one in _commands(block)))


def _commands(block: str) -> list[str]:
    return re.findall(r"^\$ (kubectl .*)$", block, re.M)


def _output(engine: Engine, command: str, names: dict[str, str]) -> str:
    """The output of a command, with the names of the page."""
    for name, own in names.items():
        command = re.sub(rf"\b{name}\b", own, command)
    done = engine.api.kubectl(*shlex.split(command)[1:])
    output = done.stdout + done.stderr
    for name, own in names.items():
        output = output.replace(own, name)
    lines = (textwrap.wrap(line.rstrip(), LINE_LENGTH, break_long_words=False) for line in output.splitlines())
    return "".join(f"{line}\n" for line in chain.from_iterable(lines))


def _comparable(block: str) -> str:
    for pattern in VARIABLE:
        block = re.sub(pattern, "*", block)
    return " ".join(block.split())


def _record(title: str, engine: str, output: str) -> None:
    """Writes a block of the page, which the test of the other engine may write at the same time."""
    with PAGE.open("r+") as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        text = page.read()
        before, heading, after = text.partition(f"\n### {title}\n")
        after = after.replace(_block(text, title, engine), output, 1)
        page.seek(0)
        page.truncate()
        page.write(before + heading + after)
