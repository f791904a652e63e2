"""Checks of the workflows of the hosted CI."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from localcluster.binaries.versions import versions
from support.api_client import ROOT, binary
from support.previous_release import COMMIT

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


def test_the_checkout_of_the_tests_has_the_previous_release(tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())["jobs"]["test"]["steps"]
    (depth,) = [step["with"].get("fetch-depth", 1) for step in steps if "actions/checkout@" in step.get("uses", "")]
    options = ["--no-checkout", *(["--depth", str(depth)] if depth else [])]
    subprocess.run(["git", "clone", "--quiet", *options, f"file://{ROOT}", str(tmp_path)], check=True)
    done = subprocess.run(["git", "-C", str(tmp_path), "cat-file", "-e", COMMIT], capture_output=True, check=False)
    assert done.returncode == 0, "set fetch-depth: 0, so that the checkout has the commit of the previous release"


def test_dependabot_watches_every_go_module() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "docker", "uv", "gomod"}
    modules = [update for update in updates if update["package-ecosystem"] == "gomod"]
    patterns = [pattern for update in modules for pattern in update["directories"]]
    watched = {folder for pattern in patterns for folder in ROOT.glob(pattern.strip("/"))}
    assert {path.parent for path in ROOT.glob("localcluster/**/go.mod")} <= watched


def test_the_workflow_of_kubernetes_versions_has_all_of_them() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/kubernetes.yaml").read_text())["jobs"]
    minors = jobs["versions"]["strategy"]["matrix"]["version"]
    assert [version.rpartition(".")[0] for version in versions().other_kubernetes] == minors


def test_the_base_image_of_the_dockerfile_has_a_digest() -> None:
    bases = re.findall(r"^FROM (\S+[:/]\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert bases
    assert [base for base in bases if not re.search(r"@sha256:[0-9a-f]{64}$", base)] == []
