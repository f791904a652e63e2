"""The tutorials: each command of a page runs, in order, beside the files that the page gives."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from support.api_client import ROOT
from support.tutorial import page

DOCS = ROOT / "docs"
# Training on text for an epoch takes minutes.
SHORTER = {
    "--epochs 20 --optimizer adam": "--epochs 12 --optimizer adam",
    "--epochs 1 --model-name text": "--epochs 1 --max-steps 40 --log-seconds 0.01 --model-name text",
}
FILE = re.compile(r"`(\w+\.py)`")


@pytest.fixture
def environment_of_reader(preloaded_python: list[str], environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """`python` is a process that has imported TensorFlow."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(preloaded_python)} "$@"\n')
    program.chmod(0o755)
    return environment | {"PATH": os.pathsep.join([str(program.parent), environment["PATH"]]), "PYTHONPATH": ""}


def shorter(script: str) -> str:
    """The script with fewer steps where this shows the same."""
    for long, short in SHORTER.items():
        script = script.replace(long, short)
    return script


def follow(name: str, directory: Path, environment: dict[str, str]) -> str:
    """Saves the file of a page, runs its commands, and returns their output."""
    text = (DOCS / name).read_text()
    for content in page.blocks(DOCS / name, "python"):
        file = FILE.findall(text[: text.index(content)])[-1]
        (directory / file).write_text(content)
    return page.run_script(shorter("".join(page.blocks(DOCS / name, "sh"))), directory, environment)


def accuracies(output: str) -> list[float]:
    """What the trainings and evaluations measured."""
    return [float(found) for found in re.findall(r"^Test accuracy: (\S+)$", output, re.MULTILINE)]


def test_images_are_learnt_and_then_other_classes(tmp_path: Path, environment_of_reader: dict[str, str]) -> None:
    output = follow("tutorial-images.md", tmp_path, environment_of_reader)
    assert output.startswith("disc\nring\n")
    assert min(accuracies(output)) > 0.95
    tuned = accuracies(follow("tutorial-fine-tuning.md", tmp_path, environment_of_reader))
    assert len(tuned) == 2
    assert tuned[-1] > 0.95


def test_a_table_is_learnt(tmp_path: Path, environment_of_reader: dict[str, str]) -> None:
    output = follow("tutorial-tabular.md", tmp_path, environment_of_reader)
    (error,) = re.findall(r"^Test mean_absolute_error: (\S+)$", output, re.MULTILINE)
    assert float(error) < 20


def test_text_is_read_by_the_functions_of_a_module(tmp_path: Path, environment_of_reader: dict[str, str]) -> None:
    output = follow("tutorial-text.md", tmp_path, environment_of_reader)
    losses = [float(loss) for loss in re.findall(r" loss (\S+) accuracy ", output)]
    assert losses[0] > 4 > 3.5 > losses[-1]
    assert len(accuracies(output)) == 1
