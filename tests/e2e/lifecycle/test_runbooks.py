"""The commands of the runbooks and of docs/troubleshooting.md, for a job that runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from e2e.examples import User
from e2e.install import ROOT, Target
from e2e.namespace import HELD, Namespace
from support.tutorial import page

RUNBOOKS, TROUBLESHOOTING = ROOT / "docs" / "runbooks", ROOT / "docs" / "troubleshooting.md"
# What this cluster does not have: a pool of nodes, the cluster autoscaler, a container that has ended before,
# Prometheus, and the trainer in the image of the tests.
ELSEWHERE = ("hvj cluster show", "cluster-autoscaler-status", "--previous", "can-i get /metrics", "hvj job stacks")


@pytest.fixture(scope="module")
def scripts() -> list[str]:
    """Every command of the pages."""
    pages = [TROUBLESHOOTING, *sorted(RUNBOOKS.glob("*.md"))]
    found = [line for each in pages for line in page.commands(each)]
    return [line for line in found if not any(words in line for words in ELSEWHERE)]


def test_every_command_of_a_runbook_answers(
    namespace: Namespace, target: Target, scripts: list[str], tmp_path: Path
) -> None:
    namespace.apply(namespace.job("held", HELD, worker={"replicas": 2}))
    namespace.wait_phase("held", "Running")
    (node,) = namespace.nodes_of("held-worker-0")
    user = User(namespace, target, tmp_path)
    names = {"<namespace>": namespace.name, "<name>": "held", "<job>": "held", "NAME": "held", "<node>": node}
    failed = []
    for script in scripts:
        for word, name in (names | {"<reason>": "held"}).items():
            script = script.replace(word, name)
        try:
            user.run(script)
        except subprocess.CalledProcessError as error:
            if error.returncode != 1 or "| grep " not in script:  # nothing is wrong, so a filter can find nothing
                failed.append(script)
    assert failed == []
    assert len(scripts) > 25
    namespace.release("held-worker-0", "held-worker-1")
    namespace.wait_phase("held", "Succeeded")
