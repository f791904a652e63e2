"""The effect of source changes on images: new tags and rebuilt layers."""

import tomllib
from pathlib import Path

import pytest

from localcluster.images.builder import ImageError
from localcluster.images.project import ROOT, build, inputs_hash, mounted_digest

FILES = ("Dockerfile", ".dockerignore", "uv.lock", "LICENSE", "operator/a.py", "trainer/a.py", "images/slim.sh")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\n[tool.ruff]\nline-length = 120\n')
    return tmp_path


@pytest.mark.parametrize("name", ["images/horovod/patches/a.patch", "trainer/a.py"])
def test_a_change_of_trainer_or_horovod_changes_only_the_tag_of_the_trainer(tree: Path, name: str) -> None:
    before = {role: inputs_hash(role, tree) for role in ("operator", "trainer", "mpi")}
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("edited")
    assert {role for role, tag in before.items() if inputs_hash(role, tree) != tag} == {"trainer"}


@pytest.mark.parametrize("name", ["Dockerfile", "uv.lock", "images/slim.sh", "pyproject.toml"])
def test_a_step_is_repeated_when_a_file_that_it_mounts_changes(tree: Path, name: str) -> None:
    before = mounted_digest(tree)
    (tree / name).write_text(f"{(tree / name).read_text()}[project.scripts]\n")
    assert mounted_digest(tree) != before


def test_a_source_change_or_a_setting_of_a_linter_repeats_no_step_that_installs_packages(tree: Path) -> None:
    before = (mounted_digest(tree), inputs_hash("trainer", tree))
    settings = (tree / "pyproject.toml").read_text()
    (tree / "pyproject.toml").write_text(settings.replace("120", "100"))
    assert (mounted_digest(tree), inputs_hash("trainer", tree)) == before
    (tree / "trainer/a.py").write_text("edited")
    assert mounted_digest(tree) == before[0]


def test_an_arm_machine_is_told_where_to_build_and_to_run_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("localcluster.images.project.IMAGES", Path("/nothing"))
    with pytest.raises(ImageError, match=r"for x86_64, .* this machine is aarch64: build them on x86_64, .* amd64$"):
        build(["operator"])
    (environment,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["environments"]
    assert "platform_machine == 'x86_64'" in environment
