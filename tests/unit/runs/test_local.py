"""`hvj run --local`: the files of a run under mpirun on this machine."""

from pathlib import Path

import pytest

from horovodjob_cli.errors import UsageError
from horovodjob_cli.runs.local import run_here
from horovodjob_cli.runs.request import RunRequest

SCRIPT = """
import os, pathlib, sys
rank = os.environ["OMPI_COMM_WORLD_RANK"]
files = sorted(path.name for path in pathlib.Path().iterdir())
text = f"{os.environ['OMPI_COMM_WORLD_SIZE']} {sys.argv[1:]} {os.environ['SEED']} {files}"
pathlib.Path(os.environ["AZ_BATCHAI_OUTPUT_output"], rank).write_text(text)
sys.exit(7)
"""


def test_each_rank_runs_in_a_copy_of_the_files_that_a_job_gets(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    (project / "data.bin").write_text("ignored")
    (project / ".hvjignore").write_text("*.bin\n.hvjignore\n")
    request = RunRequest("train.py", ("--epochs", "3"), project, nodes=2, gpus=0, env=("SEED=1",))
    assert run_here(request, tmp_path / "output") == 7
    texts = {path.name: path.read_text() for path in (tmp_path / "output").iterdir()}
    assert texts == dict.fromkeys("01", "2 ['--epochs', '3'] 1 ['train.py']")


def test_without_mpirun_the_command_for_a_container_engine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"docker run .* trainer:1 mpirun -n 8 python3 train\.py '--name=a b'"):
        run_here(RunRequest("train.py", ("--name=a b",), tmp_path, nodes=4, gpus=2, image="trainer:1"), None)
