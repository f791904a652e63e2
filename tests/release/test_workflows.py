"""The workflows of the hosted CI, as far as they can be checked without it."""

from __future__ import annotations

import re
import subprocess

from api.client import ROOT, binary

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_the_workflows_pass_actionlint() -> None:
    command = [binary("actionlint"), "-no-color", "-shellcheck", str(ROOT / ".venv" / "bin" / "shellcheck")]
    done = subprocess.run([*command, *map(str, WORKFLOWS)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_action_is_pinned_to_a_commit() -> None:
    used = [line for path in WORKFLOWS for line in re.findall(r"uses: (.+)", path.read_text())]
    assert len(used) > 8
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_the_make_targets_of_the_workflows_exist() -> None:
    texts = "".join(path.read_text() for path in WORKFLOWS)
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", texts))
    assert targets >= {"environment", "release"}
    assert [target for target in targets if f"\n{target}: " not in makefile] == []
