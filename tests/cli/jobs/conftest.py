"""A directory with a script, and a user who may run it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.service_account import account_kubeconfig
from support.api_client import BASE, Api

# What a cluster's controller aggregates to the ClusterRole `edit`, and the rules of the operator's chart for it.
EDIT = ("system:aggregate-to-edit", "system:aggregate-to-view", "horovodjob-edit")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script, its package, and data that Git ignores; it is the current one."""
    directory = tmp_path / "project"
    (directory / "package").mkdir(parents=True)
    (directory / "train.py").write_text("import package.model")
    (directory / "package" / "model.py").write_text("layers = 3")
    (directory / "data.bin").write_text("ignored")
    (directory / ".gitignore").write_text("*.bin\n")
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def member(api: Api, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """`hvj` has the rights of the role `edit` in the workspace, and no others."""
    documents = yaml.safe_load_all((BASE / "rbac.yaml").read_text())
    (role,) = (each for each in documents if "aggregate-to-edit" in str(each["metadata"].get("labels")))
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    created = api.create(roles, {"metadata": {"name": EDIT[-1]}, "rules": role["rules"]})
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, cluster.namespace, tmp_path, *EDIT)))
    yield
    api.delete(f"{roles}/{created['metadata']['name']}")
