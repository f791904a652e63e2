"""The dry run of a pull request: the commands of both CI files, with the account of manifests/gitops/pull-requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.api_client import JOBS, Api, binary, wait_for
from support.gitops.health import GITOPS

FOLDER = GITOPS / "pull-requests"
NAMESPACE, ACCOUNT = "training", "pull-requests"
COLLECTION = JOBS.format(NAMESPACE)
ONLY_DRY_RUNS = "pull requests may apply nothing but a dry run"
Run = Callable[..., subprocess.CompletedProcess[str]]


# The commands of both files differ only in what stands around them: one of them is enough for what they refuse.
one_file = pytest.mark.parametrize("check", ["github-actions.yaml"], indirect=True)


def commands(file: str) -> str:
    """The commands of a CI file that check a pull request."""
    content = yaml.safe_load((FOLDER / file).read_text())
    if file.startswith("github"):
        return str(content["jobs"]["dry-run"]["steps"][-1]["run"])
    return "\n".join(content["dry-run"]["script"])


@pytest.fixture(scope="module")
def kubeconfig(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of the account, as soon as the admission policy is in effect."""
    api.kubectl("create", "namespace", NAMESPACE)
    done = api.kubectl("apply", "--server-side", "-f", str(FOLDER / "account.yaml"))
    assert done.returncode == 0, done.stderr
    token = api.kubectl("--namespace", NAMESPACE, "create", "token", ACCOUNT).stdout
    file = tmp_path_factory.mktemp("account") / "kubeconfig"
    config = yaml.safe_load(api.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file.write_text(yaml.safe_dump(config))
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
    create = ("--kubeconfig", str(file), "--namespace", NAMESPACE, "create", "-f", "-")

    def is_refused() -> bool:
        refused = ONLY_DRY_RUNS in api.kubectl(*create, stdin=yaml.safe_dump(probe)).stderr
        if not refused:
            api.kubectl("--namespace", NAMESPACE, "delete", "--ignore-not-found", "configmap", "probe")
        return refused

    wait_for("the admission policy of the account", is_refused)
    return file


@pytest.fixture(params=["github-actions.yaml", "gitlab-ci.yaml"])
def check(request: pytest.FixtureRequest, kubeconfig: Path, tmp_path: Path) -> Run:
    """Runs the commands in the repository of the example, after a change of a file."""
    shutil.copytree(GITOPS / "example", tmp_path / "repository")
    path = f"{Path(binary('kubectl')).parent}:{os.environ['PATH']}"

    def run(file: str, old: str, new: str) -> subprocess.CompletedProcess[str]:
        changed = tmp_path / "repository" / file
        assert old in changed.read_text()
        changed.write_text(changed.read_text().replace(old, new))
        command = ["bash", "-eo", "pipefail", "-c", commands(request.param)]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        return subprocess.run(
            command, cwd=changed.parents[2], env=environment, capture_output=True, text=True, check=False
        )

    return run


def jobs_of(api: Api) -> list[str]:
    """The jobs of the namespace, in which other tests create some."""
    return [one["metadata"]["uid"] for one in api.get(COLLECTION)["items"]]


def test_a_good_change_passes_and_creates_nothing(check: Run, api: Api) -> None:
    before = jobs_of(api)
    done = check("jobs/cifar/job.yaml", "replicas: 4", "replicas: 3")
    assert done.returncode == 0, done.stderr
    assert "horovodjob.horovodjob.dev/cifar-" in done.stdout
    assert all(line.endswith("serverside-applied (server dry run)") for line in done.stdout.splitlines())
    assert jobs_of(api) == before


@one_file
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("jobs/cifar/job.yaml", "replicas: 4", "replicas: 0", "spec.worker.replicas: Invalid value: 0"),
        ("jobs/cifar/job.yaml", "pool: gpunp", "pool: gpunp: a", "mapping values are not allowed"),
        ("jobs/digits/kustomization.yaml", "train.sh", "train.py", "no such file or directory"),
    ],
)
def test_a_bad_change_fails_and_names_it(file: str, old: str, new: str, message: str, check: Run) -> None:
    done = check(file, old, new)
    assert done.returncode != 0, done.stdout
    assert message in done.stderr


@one_file
def test_a_change_of_a_frozen_field_under_the_same_name_fails(check: Run, api: Api) -> None:
    rendered = api.kubectl("kustomize", str(GITOPS / "example" / "jobs")).stdout
    done = api.kubectl("apply", "--server-side", "-f", "-", stdin=rendered)
    assert done.returncode == 0, done.stderr
    operation = json.dumps([{"op": "add", "path": "/spec/shmSize", "value": "1Gi"}])
    patch = f"patches: [{{target: {{kind: HorovodJob}}, patch: '{operation}'}}]\nresources"
    done = check("jobs/cifar/kustomization.yaml", "resources", patch)
    assert done.returncode != 0, done.stdout
    assert "shmSize can change only while the job is suspended" in done.stderr


def test_the_account_can_apply_nothing(kubeconfig: Path, api: Api) -> None:
    before = jobs_of(api)
    rendered = api.kubectl("kustomize", str(GITOPS / "example" / "jobs")).stdout.replace("replicas: 4", "replicas: 5")
    done = api.kubectl("--kubeconfig", str(kubeconfig), "apply", "--server-side", "-f", "-", stdin=rendered)
    assert ONLY_DRY_RUNS in done.stderr
    assert "serverside-applied" not in done.stdout
    assert jobs_of(api) == before


def test_the_workflow_passes_actionlint() -> None:
    command = [binary("actionlint"), "-no-color", "-shellcheck=", str(FOLDER / "github-actions.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
