"""The Python distributions, as their users install them."""

from __future__ import annotations

import os
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from horovodjob_release.distributions import build_distributions, required_packages, wheel_name
from horovodjob_release.version import project_version
from stages.commands import environment
from stages.python_environment import find_python, find_uv
from support.api_client import ROOT

IMPORT_ALL = """
import importlib, pkgutil, horovodjob, horovodjob_cli
for package in (horovodjob, horovodjob_cli):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
"""
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels and source distributions, by the name before the version."""
    target = tmp_path_factory.mktemp("dist")
    return {path.name.partition("-")[0] + path.suffix: path for path in build_distributions(ROOT, target)}


@pytest.fixture(scope="module")
def hvj(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`hvj` in an environment with only the wheel and its requirements without extras."""
    venv, python = tmp_path_factory.mktemp("plain") / "venv", find_python()
    own = {**os.environ, **environment(), "UV_PROJECT_ENVIRONMENT": str(venv)}
    uv = str(find_uv(python))
    for command in (
        ["sync", "--quiet", "--frozen", "--no-dev", "--no-install-project", "--python", python],
        ["pip", "install", "--quiet", "--no-deps", "--no-index", f"--python={venv}", str(built["horovodjob.whl"])],
    ):
        subprocess.run([uv, *command], cwd=ROOT, env=own, check=True)
    return venv / "bin" / "hvj"


def test_each_distribution_has_a_wheel_and_a_source_archive(built: dict[str, Path]) -> None:
    assert set(built) == {"horovodjob.whl", "horovodjob.gz", "horovodjob_trainer.whl", "horovodjob_trainer.gz"}
    assert all(project_version(ROOT) in path.name for path in built.values())


def test_the_wheels_have_no_file_in_common(built: dict[str, Path]) -> None:
    contents = [set(zipfile.ZipFile(built[name]).namelist()) for name in ("horovodjob.whl", "horovodjob_trainer.whl")]
    assert not contents[0] & contents[1]
    tops = [{name.partition("/")[0] for name in content if "dist-info" not in name} for content in contents]
    assert tops == [{"horovodjob", "horovodjob_operator", "horovodjob_cli"}, {"horovodjob_trainer"}]


def test_the_plain_installation_has_a_working_hvj(hvj: Path) -> None:
    shown = subprocess.run([hvj, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert shown.stdout == f"hvj {project_version(ROOT)}\n"
    subprocess.run([hvj.with_name("python"), "-c", IMPORT_ALL], check=True, cwd="/")


def test_the_requirements_of_a_wheel_have_the_versions_of_the_lock(built: dict[str, Path]) -> None:
    found = {package.name: package for package in required_packages(built["horovodjob.whl"], ROOT)}
    assert found.keys() >= {"typer", "kubernetes", "kopf", "cffi"}, "extras and what is required in turn, too"
    assert "tensorflow-cpu" not in found
    assert all(package.version for package in found.values())


def test_the_operator_image_has_the_requirements_of_its_wheel_and_no_command_line_client() -> None:
    project = PYPROJECT["project"]
    image = PYPROJECT["dependency-groups"]["operator-image"]
    assert set(image) <= {*project["dependencies"], *project["optional-dependencies"]["operator"]}
    assert set(project["optional-dependencies"]["operator"]) <= set(image)
    assert not {Requirement(line).name for line in image} & {"kubernetes", "typer", "azure-mgmt-containerservice"}


def test_the_trainer_has_the_licence_of_the_project() -> None:
    assert (ROOT / "trainer" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_name_of_a_wheel_is_that_of_its_distribution(built: dict[str, Path]) -> None:
    assert {wheel_name(built[name]) for name in built if name.endswith(".whl")} == {"horovodjob", "horovodjob-trainer"}
