"""Every command of `hvj` in the pages and examples has the options that the page gives it."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from cli.cluster_state import TIME, ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj
from horovodjob_cli import commands
from support.api_client import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"^#   (.+)$", re.MULTILINE)
# Of the commands of hvj.md: one needs an engine of containers, and one TensorBoard, which test_tensorboard.py runs.
ELSEWHERE = ("run --local", "job tensorboard")


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


def test_the_commands_of_the_page_of_hvj_answer(
    hvj: Hvj, cluster: ClusterState, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("train.py", "package/train.py", "bin/train"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("#!/usr/bin/env python3\n")
    monkeypatch.chdir(tmp_path)
    history = [{"epoch": epoch, "time": TIME, "metrics": {"val_loss": 1 / epoch}} for epoch in (1, 2)]
    for name in ("digits-lr-0005", "digits-lr-005"):
        cluster.create(name, {"horovodjob.dev/experiment": "digits"})
        cluster.run(name, training={"progress": 1, "history": history})
    cluster.pod(cluster.create("train", worker={"replicas": 1, "gpus": 0}), "worker", node=NODE)
    cluster.run("train")
    cluster.create("fails")
    cluster.fail("fails", 3)
    cluster.create("cifar-distributed")
    codes = {}
    for page, words in documented():
        if page != "hvj.md" or " ".join(words).startswith(ELSEWHERE):
            continue
        typed = [cluster.namespace if word == "training" else word for word in words]
        if typed[0] == "run":  # its wait for the end is tested in test_run.py
            typed[1:1] = ["--detach", "--image", "trainer:1"]
        codes[" ".join(words)] = hvj(*typed).code
    failed = {command: code for command, code in codes.items() if code}
    assert failed == {"job wait -w training -n fails": 3}
    assert len(codes) > 10
