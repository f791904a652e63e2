"""`hvj` in a Python that lacks what Windows lacks: modules, functions and signals of POSIX."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from cli import posix_free
from cli.program import SECONDS
from horovodjob_cli import commands
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService

JOB = {
    "properties": {
        "nodeCount": 2,
        "horovodSettings": {"pythonScriptFilePath": "/x/train.py"},
        "stdOutErrPathPrefix": "/x",
        "environmentVariables": [{"name": "ARROW", "value": "→"}],
        "containerSettings": {"imageSourceRegistry": {"image": "example.azurecr.io/trainer:1.0"}},
    }
}


def hvj(*lines: tuple[str, ...], **variables: str) -> str:
    """The output of these command lines, in one process."""
    command = [sys.executable, posix_free.__file__, json.dumps(lines)]
    # The encoding of pipes and files on Windows.
    environment = os.environ | {"PYTHONIOENCODING": "cp1252", **variables}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=SECONDS, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr.decode()
    return done.stdout.decode()


def paths(group: object, *before: str) -> list[tuple[str, ...]]:
    """All commands and groups."""
    found = [before]
    context = group.make_context("hvj", ["--help"], resilient_parsing=True)  # type: ignore[attr-defined]
    for name, each in getattr(context.command, "commands", {}).items():
        found += paths(each, *before, name)
    return found


def test_commands_show_their_help_convert_run_and_transfer_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: str
) -> None:
    every = paths(get_command(commands._root()))
    assert ("job", "node", "exec") in every
    for path, text in (("models/train.py", "print()"), ("data/train/one.tar", "1"), ("job.json", json.dumps(JOB))):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "account" / "myshare").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    converted = yaml.safe_load(hvj(("convert", "-f", "job.json", "--name", "train")))
    assert {"name": "ARROW", "value": "→"} in converted["spec"]["env"], "the output is UTF-8"
    made = yaml.safe_load_all(hvj(("run", "--dry-run", "--gpus", "0", "models/train.py")))
    assert [each["kind"] for each in made] == ["ConfigMap", "HorovodJob"]
    with FilesService([Account("account", tmp_path / "account")]) as service:
        shown = hvj(
            ("storage", "file", "upload", "--source", "data", "-s", "myshare"),
            ("storage", "file", "sync", "--source", "data", "-s", "myshare", "--path", "data", "--delete"),
            ("storage", "file", "download", "--path", "data\\train", "-s", "myshare", "--dest", "copy"),
            ("storage", "file", "download", "--path", "data/train/one.tar", "-s", "myshare", "--dest", "one.tar"),
            *((*path, "--help") for path in every),
            AZURE_STORAGE_CONNECTION_STRING=service.connection_string("account"),
        )
    assert shown.count("Usage: hvj") == len(every)
    assert (tmp_path / "copy" / "one.tar").read_text() == (tmp_path / "one.tar").read_text() == "1"
