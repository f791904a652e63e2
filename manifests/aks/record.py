#!/usr/bin/env python3
"""Records what Azure answers in a real run, without secrets, as fixtures for the fakes in tests/support/azure_fakes.

    manifests/aks/record.py DIRECTORY manifests/aks/up.sh --gpu

It runs the command with an `az` first on its PATH that calls the real one and writes each call to
DIRECTORY/calls.jsonl: arguments, exit code, output and errors. At the end it reads the cluster, its pools and its
maintenance windows, which the fake of Azure Resource Manager answers, into DIRECTORY/*.json. Identifiers, keys, tokens,
mail and network addresses are replaced, each by the same word everywhere. Read the files before you share them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# What is replaced, and the words for it; the order matters, because a token contains what looks like a key.
GUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
SECRETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("token", re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*")),
    ("signature", re.compile(r"(?<=[?&]sig=)[^&\s\"'\\]+")),
    ("pem", re.compile(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----", re.DOTALL)),
    ("mail", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    (
        "key",
        re.compile(r"(?<![\w/.-])(?=[A-Za-z0-9+/]*[A-Z+])(?=[A-Za-z0-9+/]*[0-9])[A-Za-z0-9+/]{40,}={0,2}(?![\w/])"),
    ),
    ("hex", re.compile(r"\b(?:[0-9a-f]{32,}|[0-9A-F]{40})\b")),
    ("address", re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!/)")),
)
# Addresses that are the same everywhere.
PUBLIC = ("127.0.0.1", "0.0.0.0", "169.254.169.254")
READS = {
    "cluster": "{cluster}",
    "agentPools": "{cluster}/agentPools",
    "maintenanceConfigurations": "{cluster}/maintenanceConfigurations",
}
API_VERSION = "2025-05-01"


class Redaction:
    """Replaces secrets, the same one by the same word, which `path` keeps for the next process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}

    def of(self, text: str) -> str:
        """The text without secrets."""
        for kind, pattern in SECRETS:
            text = pattern.sub(self._word(kind), text)
        return GUID.sub(self._guid, text)

    def save(self) -> None:
        """Writes the words; the file is as secret as what they replace."""
        self._path.write_text(json.dumps(self._words))
        self._path.chmod(0o600)

    def _word(self, kind: str) -> Callable[[re.Match[str]], str]:
        def word(found: re.Match[str]) -> str:
            return found[0] if found[0] in PUBLIC else self._same(found[0], f"<{kind} {{}}>")

        return word

    def _guid(self, found: re.Match[str]) -> str:
        return self._same(found[0].lower(), "00000000-0000-4000-8000-{:012}")

    def _same(self, secret: str, words: str) -> str:
        return self._words.setdefault(secret, words.format(len(self._words) + 1))


def call(real: str, log: Path, words: Path, arguments: list[str]) -> int:
    """One call of `az`, which is recorded."""
    done = subprocess.run([real, *arguments], capture_output=True, check=False)
    output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    redaction = Redaction(words)
    entry = {
        "arguments": [redaction.of(each) for each in arguments],
        "code": done.returncode,
        "stdout": redaction.of(output),
        "stderr": redaction.of(errors),
    }
    with log.open("a") as file:
        file.write(f"{json.dumps(entry)}\n")
    redaction.save()
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


def read_cluster(real: str, directory: Path, words: Path) -> None:
    """The answers of Azure Resource Manager about each cluster of the subscription that this project has created."""
    listed = subprocess.run(
        [real, "aks", "list", "--query", "[?name=='horovod'].id", "--output", "tsv"],
        capture_output=True,
        text=True,
        check=False,
    )
    for cluster in listed.stdout.split():
        for name, path in READS.items():
            url = f"{path.format(cluster=cluster)}?api-version={API_VERSION}"
            done = subprocess.run(
                [real, "rest", "--method", "get", "--url", url], capture_output=True, text=True, check=False
            )
            redaction = Redaction(words)
            (directory / f"{name}.json").write_text(redaction.of(done.stdout))
            redaction.save()


def main() -> int:
    """The exit code of the command."""
    if os.environ.get("RECORDED_AZ"):
        log, words = (Path(os.environ[name]) for name in ("RECORDED_CALLS", "RECORDED_WORDS"))
        return call(os.environ["RECORDED_AZ"], log, words, sys.argv[1:])
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    real = shutil.which("az")
    if real is None:
        print("error: az is not installed", file=sys.stderr)
        return 1
    directory = Path(sys.argv[1]).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        shim = Path(temporary, "az")
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
        shim.chmod(0o755)
        words = Path(temporary, "words.json")
        environment = os.environ | {
            "PATH": f"{temporary}{os.pathsep}{os.environ['PATH']}",
            "RECORDED_AZ": real,
            "RECORDED_CALLS": str(directory / "calls.jsonl"),
            "RECORDED_WORDS": str(words),
        }
        code = subprocess.run(sys.argv[2:], env=environment, check=False).returncode
        read_cluster(real, directory, words)
    print(f"recorded in {directory}; read the files before you share them", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
