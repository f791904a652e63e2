"""Commands of docs/install.md, operations.md and metrics.md that need no node, as an administrator types them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.api_client import ROOT, Api, binary
from support.helm import HELM4
from support.tutorial import page

DOCS = ROOT / "docs"


@pytest.fixture
def follow(api: Api, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs commands in a copy of what a checkout has, with kubectl and Helm 4 on PATH, and a namespace `team-a`."""
    for name in ("charts", "manifests"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in {"kubectl": "kubectl", "helm": HELM4}.items():
        (programs / name).symlink_to(binary(program))
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    user = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(api.kubeconfig)}

    def run(script: str) -> str:
        return page.run_script(script, tmp_path, user)

    run("kubectl create namespace team-a")
    yield run
    run("kubectl delete namespace team-a")


def test_operators_of_a_namespace_are_installed_by_its_administrator(follow: Callable[[str], str]) -> None:
    blocks = page.blocks(DOCS / "install.md", "sh", "Values that matter")
    some_namespaces, prepared, installed, reviews = blocks
    follow(some_namespaces)
    follow("helm uninstall horovodjob-operator --namespace team-a")
    try:
        follow(prepared)
        follow(installed)
        follow(reviews)
        found = follow("kubectl --namespace team-a get deployment horovodjob-operator --output name")
        assert found == "deployment.apps/horovodjob-operator\n"
        follow("helm uninstall horovodjob-operator --namespace team-a")
    finally:
        follow("kubectl delete clusterrolebinding team-a-horovodjob-operator --ignore-not-found")
        follow("kubectl delete -k manifests/namespace-admins --ignore-not-found")


def test_the_administrator_of_a_cluster_prepares_namespaces(follow: Callable[[str], str], tmp_path: Path) -> None:
    label, defaults, team = page.blocks(DOCS / "operations.md", "sh", "Settings")
    (nodes,) = page.blocks(DOCS / "operations.md", "sh", "Rights")
    metrics = page.blocks(DOCS / "metrics.md", "sh", "Authorization")[0]
    try:
        for script in (label, defaults, team, nodes, metrics):
            follow(script)
        assert "team-b" in follow("kubectl get namespace team-b --output name")
        assert "teama" in follow("kubectl get namespace team-a --output yaml")
        shutil.rmtree(tmp_path / "team-b")
    finally:
        follow("kubectl delete namespace team-b --ignore-not-found")
        follow("kubectl delete clusterrolebinding team-a-nodes prometheus-horovodjob --ignore-not-found")
