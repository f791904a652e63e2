"""The first steps of the README: a training in a new environment without Horovod, as `pip install` makes it."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.python_environment import find_python, find_uv
from stages.settings import ROOT

SCRIPT = ROOT / "manifests" / "examples" / "script"
INSTALL = "pip install . './trainer[local]' tensorflow-cpu"
RUN = "hvj run --local --nodes 2 --workdir manifests/examples/script train.py"
README = (ROOT / "README.md").read_text()
REMOVED = ("OMPI_", "HOROVOD", "PYTHON")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with what the README installs, in the versions of uv.lock."""
    directory, uv = tmp_path_factory.mktemp("first"), find_uv(find_python())
    locked = ("export", "--frozen", "--no-hashes", "--no-emit-project", "--group", "trainer", "--group", "mpi4py")
    versions = subprocess.run([uv, *locked], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (directory / "versions.txt").write_text(re.sub("^horovod==.*$", "", versions, flags=re.MULTILINE))
    subprocess.run([uv, "venv", "--quiet", "--python", find_python(), directory / "venv"], check=True)
    options = ("--quiet", "--python", directory / "venv", "--constraint", directory / "versions.txt")
    subprocess.run([uv, "pip", "install", *options, *shlex.split(INSTALL)[2:]], cwd=ROOT, check=True)
    return directory / "venv" / "bin"


@pytest.fixture
def run(path: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs a command line of the README in the environment."""

    def ended(line: str, *more: str, **variables: str) -> Any:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED)}
        environment = kept | {"PATH": f"{path}:/usr/bin:/bin", "VIRTUAL_ENV": str(path.parent)} | variables
        return subprocess.run(
            [*line.split(), *more], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    return ended


def test_the_trainer_runs_alone_without_mpi(path: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('No module named mpi4py')")
    done = run("horovodjob-trainer --dataset digits --max-steps 3", "--dir", str(tmp_path), PYTHONPATH=str(tmp_path))
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "horovodjob_trainer: Horovod is not built in this Python; this is the only rank\n" in done.stderr
    assert (tmp_path / "saved_models" / "keras_digits_trained_model.keras").is_file()


def test_two_ranks_train_with_the_two_commands_of_the_readme(run: Callable[..., Any], tmp_path: Path) -> None:
    assert [line for line in (INSTALL, RUN) if line not in README] == []
    done = run(RUN.replace(" train.py", f" --download {tmp_path / 'output'} train.py"), "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^2 ranks, test accuracy 0\.[0-9]+$", done.stdout, re.MULTILINE)
    assert (tmp_path / "output" / "model.keras").is_file()
    told = "horovodjob_trainer: Horovod is not built in this Python; 2 ranks exchange over MPI with mpi4py\n"
    assert (done.stderr.count(told), "Traceback" in done.stderr) == (1, False)


def test_the_wheels_of_a_release_have_the_same_requirements(path: Path, tmp_path: Path) -> None:
    uv = find_uv(find_python())
    for source in (ROOT, ROOT / "trainer"):
        subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, source], check=True)
    (line,) = re.findall(r"^pip install (\./.*)$", README, re.MULTILINE)
    command = [str(uv), "pip", "install", "--dry-run", "--python", str(path.parent), *shlex.split(line)]
    planned = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert set(re.findall(r"^ [+-] ([\w-]+)", planned, re.MULTILINE)) <= {"horovodjob", "horovodjob-trainer"}, planned
