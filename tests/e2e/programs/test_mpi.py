"""Each MPI implementation: placement, arguments and termination of its ranks. All jobs run side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace, volume
from e2e.programs.mpi import INSTALLED, PATH
from support.api_client import Object

HYDRA = ("mpich", "intel")
each = pytest.mark.parametrize("name", INSTALLED)


# Arguments with characters that shells and launchers interpret.
WORDS = [":", "+", "", "a  'b' \"c\" \\ \n", "-n", "--", "$$(HOME)", "ü"]
VARIABLES = {"data-set": 'it\'s  "two" words', "GREETING": "two  words"}
CONFIG: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"train.lr": "0.1"},
}
PYTHON = "/opt/venv/bin/python3"
# In attempt 1, rank 0 waits in MPI_Init for a rank that fails before.
MEET = (
    f"NAMES = {[*VARIABLES, *CONFIG['data']]}"
    + """
import json, os, socket, sys
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
if (os.environ["HOROVODJOB_ATTEMPT"], rank) == ("1", "2"):
    sys.exit(7)
from mpi4py import MPI
world = MPI.COMM_WORLD
before, after = (world.rank - 1) % world.size, (world.rank + 1) % world.size
report = {
    "address": socket.gethostbyname(socket.gethostname()),
    "pod": os.environ["HOROVODJOB_POD"],
    "words": sys.argv[1:],
    "variables": {name: os.environ.get(name) for name in NAMES},
    "input": sys.stdin.read(),
    "sum": world.allreduce(world.rank),
    "received": world.sendrecv(world.rank, dest=after, source=before),
    "library": MPI.Get_library_version(),
}
if everybody := world.gather(report):
    print(json.dumps([everybody, open(os.environ["HOROVODJOB_HOSTFILE"]).read()]))
"""
)
# After SIGTERM, the ranks need different times: of six, two end at once, and two have nothing to save.
SAVE = """
import os, pathlib, signal, sys, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
file = pathlib.Path("/data", f"{os.environ['HOROVODJOB_POD']}-{rank}")
def save(*_):
    time.sleep(3 if rank in (2, 5) else 0)
    file.with_name(file.name + "-saved").open("x").close()
    sys.exit(143)
if rank in (0, 1, 2, 5):
    signal.signal(signal.SIGTERM, save)
file.touch()
while True:
    time.sleep(1)
"""
# It starts no rank and ends with 0, as Open MPI's can when it forwards a signal while it starts its daemons.
LOST_MPIRUN = f'#!/bin/sh\n[ "$1" != --version ] || exec {INSTALLED["open4"].directory}/bin/mpirun --version\n'
OWN = "mpirun -genvnone -n 4 sh -c 'echo $PMI_RANK $HOROVODJOB_POD'"


@pytest.fixture(scope="module")
def share(shared_directory: Callable[[str], Path]) -> Path:
    return shared_directory("mpi")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, images: dict[str, str], share: Path) -> Namespace:
    """The namespace, with all jobs in it."""
    jobs: list[Object] = []

    def job(name: str, command: list[str] | None = None, **spec: Any) -> None:
        jobs.append(module_namespace.job(name, command, image=images["mpi"], **spec))

    volumes, mounts = volume(module_namespace, share)
    for name, mpi in INSTALLED.items():
        # The directory of this MPI is not in the PATH, and a shell cannot have some of the names.
        env = [{"name": name, "value": value} for name, value in VARIABLES.items()]
        meet = {
            "mpi": {"implementation": mpi.implementation, "prefix": mpi.directory, "args": [mpi.option]},
            "env": env,
        }
        meet |= {"envFrom": [{"configMapRef": {"name": "settings"}}], "runPolicy": {"backoffLimit": 1}}
        job(f"meet-{name}", [PYTHON, "-c", MEET, *WORDS], worker={"replicas": 2, "slots": 2}, **meet)
    for name in HYDRA:
        save = {"volumes": volumes, "volumeMounts": mounts, **INSTALLED[name].spec()}
        job(f"save-{name}", ["python3", "-c", SAVE], worker={"replicas": 2, "slots": 3}, **save)
        own = {"launcherCommand": ["sh", "-c", OWN], "launcher": {"asWorker": True}, **INSTALLED[name].spec()}
        job(f"own-{name}", worker={"replicas": 2, "slots": 2}, **own)
    (share / "bin").mkdir()
    (share / "bin" / "mpirun").write_text(LOST_MPIRUN)
    (share / "bin" / "mpirun").chmod(0o755)
    lost = {"volumes": volumes, "volumeMounts": mounts, **INSTALLED["open4"].spec(PATH=f"/data/bin:{PATH}")}
    job("lost", ["echo", "trains"], worker={"replicas": 2}, **lost)
    job("other", ["true"], **INSTALLED["intel"].spec() | {"mpi": {"implementation": "MPICH"}})
    job("long", ["true", *["word"] * 1000], **INSTALLED["intel"].spec())
    module_namespace.apply(CONFIG, *jobs)
    return module_namespace


@each
def test_every_rank_runs_on_its_host_of_the_hostfile_and_reaches_the_others(namespace: Namespace, name: str) -> None:
    mpi = INSTALLED[name]
    namespace.wait_phase(f"meet-{name}", "Succeeded")
    (line,) = (line for line in namespace.output(f"meet-{name}") if line.startswith(mpi.prefix))
    ranks, hostfile = json.loads(line.removeprefix(mpi.prefix))
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in namespace.pods_ever(f"meet-{name}")}
    first, second = (f"meet-{name}-worker-{index}" for index in (0, 1))
    assert hostfile.splitlines() == [mpi.host.format(pods[worker]) for worker in (first, second)]
    assert [rank["pod"] for rank in ranks] == [first, first, second, second]
    assert [rank["address"] for rank in ranks] == [pods[rank["pod"]] for rank in ranks]
    assert [(rank["sum"], rank["received"]) for rank in ranks] == [(6, 3), (6, 0), (6, 1), (6, 2)]
    assert all(mpi.library in rank["library"] for rank in ranks)
    # The program's arguments and variables are unchanged, and standard input is empty.
    wanted = ([word.replace("$$", "$") for word in WORDS], VARIABLES | CONFIG["data"], "")
    assert all((rank["words"], rank["variables"], rank["input"]) == wanted for rank in ranks)
    (error,) = namespace.status(f"meet-{name}")["errors"]
    assert (error["attempt"], error["reason"], error["exitCode"]) == (1, "RankFailed", 7)
    assert "xit code" in error["message"]


@pytest.mark.parametrize("name", HYDRA)
def test_ranks_that_handle_sigterm_can_save_each_in_its_own_time(namespace: Namespace, share: Path, name: str) -> None:
    first, second = (f"save-{name}-worker-{index}" for index in (0, 1))
    ranks = [share / f"{first}-{rank}" for rank in (0, 1, 2)] + [share / f"{second}-{rank}" for rank in (3, 4, 5)]
    wait_for("all ranks in their places", lambda: all(file.exists() for file in ranks))
    namespace.change(f"save-{name}", {"runPolicy": {"suspend": True}})
    wait_for("no pods", lambda: not namespace.pods(f"save-{name}"))
    saved = {file.name for file in share.glob(f"save-{name}-*-saved")}
    assert saved == {f"{ranks[rank].name}-saved" for rank in (0, 1, 2, 5)}
    assert namespace.wait_phase(f"save-{name}", "Suspended")["restarts"] == 0


def test_a_launchers_own_command_needs_no_options_for_hosts_and_ssh(namespace: Namespace) -> None:
    """If the launcher hosts ranks, it is the first of the hosts."""
    for name in HYDRA:
        namespace.wait_phase(f"own-{name}", "Succeeded")
        pods = [f"own-{name}-{replica}" for replica in ("launcher", "launcher", "worker-1", "worker-1")]
        assert sorted(namespace.output(f"own-{name}")) == [f"{rank} {pod}" for rank, pod in enumerate(pods)]


def test_a_job_fails_if_mpirun_ends_with_0_and_has_started_no_rank(namespace: Namespace) -> None:
    status = namespace.wait_phase("lost", "Failed")
    assert (status["exitCode"], "trains" in namespace.output("lost")) == (1, False)
    (error,) = status["errors"]
    assert "mpirun ended with exit code 0, but no rank has run to its end" in error["message"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other", "the image is IntelMPI's and spec.mpi.implementation is MPICH: set it to IntelMPI"),
        ("long", "have 1003 words, and Intel MPI takes 1000"),
    ],
)
def test_another_mpi_than_that_of_the_image_and_too_many_arguments_are_reported(
    namespace: Namespace, name: str, words: str
) -> None:
    (error,) = namespace.wait_phase(name, "Failed")["errors"]
    assert error["reason"] == "LauncherFailed"
    assert words in error["message"]
