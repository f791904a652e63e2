"""`hvj run`: a directory with a script, on real pods."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from e2e.access import DEADLINE_SECONDS
from e2e.install import Target
from e2e.namespace import Namespace, volume

RBAC = "rbac.authorization.k8s.io"
Hvj = Callable[..., tuple[int, str]]
HVJ = Path(sys.executable).with_name("hvj")
SCRIPT = """
import os, pathlib, sys
from package.words import GREETING
print(GREETING, os.environ["OMPI_COMM_WORLD_RANK"], os.getcwd(), sys.argv[1:], flush=True)
if output := os.environ.get("AZ_BATCHAI_OUTPUT_output"):
    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        pathlib.Path(output, "model").write_text("trained by rank 0")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A script that imports a package beside it."""
    path = tmp_path / "project"
    (path / "package").mkdir(parents=True)
    (path / "package" / "words.py").write_text("GREETING = 'hello from rank'\n")
    (path / "train.py").write_text(SCRIPT)
    return path


@pytest.fixture
def hvj(namespace: Namespace, target: Target, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Hvj:
    """`hvj run` in the directory, by a service account that has the ClusterRole `edit` in the namespace only.

    The cluster's controller aggregates to this role what the operator's chart adds for jobs.
    """
    subject = {"kind": "ServiceAccount", "name": "member", "namespace": namespace.name}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    namespace.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "member"}},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "member"},
            "subjects": [subject],
            "roleRef": role,
        },
    )
    kubeconfig = yaml.safe_load(target.kubeconfig.read_text())
    token = namespace.kubectl("create", "token", "-n", namespace.name, "member").strip()
    kubeconfig["users"] = [{"name": each["name"], "user": {"token": token}} for each in kubeconfig["users"]]
    path = tmp_path_factory.mktemp("member") / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))

    def run(command: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [HVJ, command, "-w", namespace.name, *arguments],
            cwd=directory,
            env=os.environ | {"KUBECONFIG": str(path)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_one_command_runs_a_directory_on_two_nodes_and_exits_with_its_code(namespace: Namespace, hvj: Hvj) -> None:
    options = ("--image", namespace.image, "--gpus", "0", "--nodes", "2", "--name", "hello")
    for command in (("run", *options, "train.py", "7"), ("attach", "hello")):
        code, output = hvj(*command)
        assert code == 7
        assert [f"hello from rank {rank} /job/code ['7']" in output for rank in (0, 1)] == [True, True]


def test_a_claim_takes_the_directory_and_gives_the_output_back(
    namespace: Namespace, hvj: Hvj, directory: Path, shared_directory: Callable[[str], Path], tmp_path: Path
) -> None:
    share = shared_directory(namespace.name)
    volume(namespace, share)
    options = ("--image", namespace.image, "--gpus", "0", "--claim", "data")
    download = ("--download", str(tmp_path / "results"))
    code, output = hvj("run", *options, *download, "--nodes", "2", "--name", "hello", "train.py", "0")
    assert (code, "hello from rank 1 /job/code ['0']" in output) == (0, True)
    assert (tmp_path / "results" / "model").read_text() == "trained by rank 0"
    assert len(list((share / "code" / "files").iterdir())) == 2
    (directory / "package" / "words.py").write_text("GREETING = 'changed, rank'\n")
    code, output = hvj("run", *options, "--name", "again", "train.py", "0")
    assert (code, "changed, rank 0 /job/code ['0']" in output) == (0, True)
    assert len(list((share / "code" / "files").iterdir())) == 3
    assert [name for name in namespace.pods() if "-files-" in name] == []


def test_requirements_are_installed_by_one_worker_for_both(namespace: Namespace, hvj: Hvj, directory: Path) -> None:
    (directory / "wheels").mkdir()
    wheel = directory / "wheels" / "hvj_addon-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "hvj_addon-1.0.dist-info"
        archive.writestr("hvj_addon.py", "NAME = 'addon'\n")
        needs = "Requires-Dist: numpy\n"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: hvj-addon\nVersion: 1.0\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (directory / "requirements.txt").write_text("--no-index\n--find-links /job/code/wheels\nhvj-addon\n")
    (directory / "train.py").write_text(
        "import os, hvj_addon, numpy\n"
        "has_run_pip = os.path.exists('/job/code/pip.log')\n"
        "print(hvj_addon.NAME, numpy.__file__, os.environ['OMPI_COMM_WORLD_RANK'], has_run_pip, flush=True)\n"
    )
    options = ("--image", namespace.image, "--gpus", "0", "--nodes", "2", "--requirements", "requirements.txt")
    code, output = hvj("run", *options, "--env", "PIP_LOG=/job/code/pip.log", "--name", "hello", "train.py")
    assert code == 0, output
    for rank, has_run_pip in ((0, True), (1, False)):
        assert re.search(rf"addon /opt/venv/\S+ {rank} {has_run_pip}\n", output), output
