"""The Python distributions, as their users install them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from horovodjob_release.distributions import build_distributions, required_packages, wheel_name
from horovodjob_release.version import project_version
from localcluster.settings import cache_directory
from stages.commands import environment
from stages.python_environment import find_python, find_uv
from support.api_client import ROOT

# Windows has none of these modules. What others import of them is imported before.
IMPORT_ALL = """
import importlib, pkgutil, sys, horovodjob, horovodjob_cli
import azure.identity, azure.mgmt.containerservice, azure.storage.fileshare, kubernetes.client, typer.completion
sys.modules |= dict.fromkeys(("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"))
for package in (horovodjob, horovodjob_cli):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name != "horovodjob.sweeps.study":  # needs the extra `sweep`
            importlib.import_module(module.name)
"""
KUBECONFIG = """
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
"""
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels and source distributions, by the name before the version."""
    target = tmp_path_factory.mktemp("dist")
    return {path.name.partition("-")[0] + path.suffix: path for path in build_distributions(ROOT, target)}


@pytest.fixture(scope="module")
def hvj(built: dict[str, Path]) -> Iterator[Path]:
    """`hvj` in an environment with only the wheel and its requirements without extras.

    The environment has the same path in each run: its bytecode is in the cache, by this path.
    """
    venv, python = cache_directory() / "plain-environment", find_python()
    own = {**os.environ, **environment(), "UV_PROJECT_ENVIRONMENT": str(venv)}
    uv = str(find_uv(python))
    wheel = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--reinstall", f"--python={venv}"]
    with venv.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["sync", "--quiet", "--frozen", "--no-dev", "--no-install-project", "--python", python],
            [*wheel, str(built["horovodjob.whl"])],
        ):
            subprocess.run([uv, *command], cwd=ROOT, env=own, check=True)
        yield venv / "bin" / "hvj"


def test_each_distribution_has_a_wheel_and_a_source_archive_without_files_of_the_other(built: dict[str, Path]) -> None:
    assert set(built) == {"horovodjob.whl", "horovodjob.gz", "horovodjob_trainer.whl", "horovodjob_trainer.gz"}
    assert all(project_version(ROOT) in path.name for path in built.values())
    wheels = [built["horovodjob.whl"], built["horovodjob_trainer.whl"]]
    assert [wheel_name(wheel) for wheel in wheels] == ["horovodjob", "horovodjob-trainer"]
    contents = [set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels]
    assert not contents[0] & contents[1]
    tops = [{name.partition("/")[0] for name in content if "dist-info" not in name} for content in contents]
    ours = {"horovodjob", "horovodjob_operator", "horovodjob_cli", "horovodjob_dashboard"}
    assert tops == [ours, {"horovodjob_trainer"}]
    assert (ROOT / "trainer" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_plain_installation_has_a_working_hvj_and_no_operator_that_cannot_start(hvj: Path) -> None:
    shown = subprocess.run([hvj, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert shown.stdout == f"hvj {project_version(ROOT)}\n"
    subprocess.run([hvj.with_name("python"), "-c", IMPORT_ALL], check=True, cwd="/")
    programs = {path.name for path in hvj.parent.iterdir() if "horovodjob" in path.name or "hvj" in path.name}
    assert programs == {"hvj", "kubectl-hvj", "kubectl_complete-hvj"}
    command = [str(hvj.with_name("python")), "-m", "horovodjob_operator"]
    started = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (started.returncode, started.stderr.count("\n")) == (1, 1)
    assert "pip install 'horovodjob[operator]'" in started.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [(("dashboard",), "dashboard"), (("run", "--sweep", "lr=0.1,0.2", "--dry-run", "train.py"), "sweep")],
)
def test_a_command_that_needs_an_extra_says_so(hvj: Path, tmp_path: Path, command: tuple[str, ...], extra: str) -> None:
    (tmp_path / "train.py").touch()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    own = {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run([hvj, *command], capture_output=True, text=True, check=False, cwd=tmp_path, env=own)
    assert done.returncode == 1
    assert f"pip install 'horovodjob[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("version", ["3.13", "3.14"])
def test_hvj_installs_on_versions_of_python_for_which_tensorflow_has_no_wheels(
    built: dict[str, Path], version: str
) -> None:
    allowed = metadata_of(built["horovodjob.whl"])["Requires-Python"]
    assert SpecifierSet(str(allowed)).contains(f"{version}.0")
    tags = set(cpython_tags(tuple(map(int, version.split("."))), platforms=["linux_x86_64"]))
    tags |= set(compatible_tags(platforms=["linux_x86_64"]))
    supported = {(tag.interpreter, tag.abi) for tag in tags}
    for name, wheels in locked_wheels(PYPROJECT["project"]["dependencies"]).items():
        found = {(tag.interpreter, tag.abi) for wheel in wheels for tag in parse_wheel_filename(wheel)[3]}
        assert found & supported, f"{name} has no wheel for Python {version}"


def metadata_of(wheel: Path) -> Message:
    """The fields of METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(files.read(name).decode())


def locked_wheels(requirements: list[str]) -> dict[str, list[str]]:
    """The names of the wheels of packages and of all that they require, from uv.lock."""
    locked = {entry["name"]: entry for entry in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    wanted, found = [Requirement(line).name for line in requirements], dict[str, list[str]]()
    while wanted:
        entry = locked[wanted.pop()]
        if entry["name"] not in found:
            found[entry["name"]] = [unquote(wheel["url"].rpartition("/")[2]) for wheel in entry["wheels"]]
            wanted += [dependency["name"] for dependency in entry.get("dependencies", ())]
    return found


def test_the_bill_of_a_wheel_has_its_requirements_in_the_versions_of_the_lock(built: dict[str, Path]) -> None:
    found = {package.name: package for package in required_packages(built["horovodjob.whl"], ROOT)}
    assert found.keys() >= {"typer", "kubernetes", "kopf", "cffi"}, "extras and what is required in turn, too"
    assert "tensorflow-cpu" not in found
    assert all(package.version for package in found.values())
    trainer = {package.name for package in required_packages(built["horovodjob_trainer.whl"], ROOT)}
    assert trainer >= {"keras", "numpy", "mpi4py"}
    assert "wandb" not in trainer, "an extra that the lock lacks"


def test_the_operator_image_has_the_requirements_of_its_wheel_and_no_command_line_client() -> None:
    project = PYPROJECT["project"]
    image = PYPROJECT["dependency-groups"]["operator-image"]
    assert set(image) <= {*project["dependencies"], *project["optional-dependencies"]["operator"]}
    assert set(project["optional-dependencies"]["operator"]) <= set(image)
    assert not {Requirement(line).name for line in image} & {"kubernetes", "typer", "azure-mgmt-containerservice"}
