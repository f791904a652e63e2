"""`make demo`, as a user types it, on the local cluster that runs already; and what it says when it cannot work."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.access import Kubectl
from e2e.install import ROOT, Operator, install_operator
from localcluster.settings import Cluster
from support.helm import Helm
from support.tutorial import page

# It replaces the operator.
pytestmark = pytest.mark.serial

NAMESPACE = "horovodjob-demo"
# Variables of the run of these tests that would change what a user gets.
OURS = ("KUBECONFIG", "IMAGE_REGISTRY", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ONLY")


def demo(**variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command of the quick start, `make demo`, with these variables."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    (command,) = page.blocks(ROOT / "docs" / "quickstart.md", "sh", "Without a cluster")
    return subprocess.run(
        command.split(), cwd=ROOT, env=kept | variables, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.fixture
def own_operator(operator: Operator, helm: Helm, kubectl: Kubectl, images: dict[str, str]) -> Iterator[None]:
    """The demo replaces the operator; afterwards it is that of the tests again."""
    yield
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
    kubectl("delete", "persistentvolume", f"{NAMESPACE}-training-data", "--ignore-not-found")
    install_operator(helm, kubectl, images)
    operator.running()


def test_the_demo_trains_a_model_and_says_how_long_it_took(local: Cluster, own_operator: None) -> None:
    done = demo(CLUSTER_NAME=local.name)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr}"
    assert re.search(r"^  validation accuracy  0\.9[5-9]\d*$", done.stdout, re.MULTILINE), "the defaults suffice"
    (model,) = re.findall(r"^  model on this host   (\S+)$", done.stdout, re.MULTILINE)
    assert Path(model).stat().st_size > 0
    assert re.search(r"^\d+ s in all, \d+ s of them from `kubectl apply` to Succeeded\.$", done.stdout, re.MULTILINE)
    assert "make cluster-down" in done.stdout


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    unreachable = tmp_path / "kubeconfig"
    cluster = "{name: gone, cluster: {server: 'https://127.0.0.1:1'}}"
    context, user = "{name: gone, context: {cluster: gone, user: me}}", "{name: me, user: {token: secret}}"
    unreachable.write_text(f"clusters: [{cluster}]\ncontexts: [{context}]\nusers: [{user}]\ncurrent-context: gone\n")
    done = demo(KUBECONFIG=str(unreachable), IMAGE_REGISTRY="registry.example.com")
    (sentence,) = (line for line in done.stderr.splitlines() if line.startswith("demo: "))
    assert "127.0.0.1:1: connect: connection refused" in sentence
    assert "Traceback" not in done.stderr
