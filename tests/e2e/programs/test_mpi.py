"""Each MPI implementation: placement, arguments and termination of its ranks. All jobs run side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace, volume
from e2e.programs.mpi import INSTALLED
from support.api_client import Object

HYDRA = ("mpich", "intel")
# The implementations that jobs set for them.
OTHERS = (("open4", "MPICH"), ("mpich", "OpenMPI"), ("intel", "MPICH"))
each = pytest.mark.parametrize("name", INSTALLED)
each_hydra = pytest.mark.parametrize("name", HYDRA)

# Arguments with characters that shells and launchers interpret.
WORDS = [":", "+", "", "a  'b' \"c\" \\ \n", "-n", "--", "$$(HOME)", "ü"]
# In attempt 1, rank 0 waits in MPI_Init for a rank that fails before.
MEET = """
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
    "greeting": os.environ["GREETING"],
    "input": sys.stdin.read(),
    "sum": world.allreduce(world.rank),
    "received": world.sendrecv(world.rank, dest=after, source=before),
    "library": MPI.Get_library_version(),
}
if everybody := world.gather(report):
    print(json.dumps([everybody, open(os.environ["HOROVODJOB_HOSTFILE"]).read()]))
"""
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
        meet = mpi.spec(mpi.option, GREETING="two  words") | {"runPolicy": {"backoffLimit": 1}}
        job(f"meet-{name}", ["python3", "-c", MEET, *WORDS], worker={"replicas": 2, "slots": 2}, **meet)
    for name in HYDRA:
        save = {"volumes": volumes, "volumeMounts": mounts, **INSTALLED[name].spec()}
        job(f"save-{name}", ["python3", "-c", SAVE], worker={"replicas": 2, "slots": 3}, **save)
        own = {"launcherCommand": ["sh", "-c", OWN], "launcher": {"asWorker": True}, **INSTALLED[name].spec()}
        job(f"own-{name}", worker={"replicas": 2, "slots": 2}, **own)
    for name, other in OTHERS:
        job(f"other-{name}", ["true"], **INSTALLED[name].spec() | {"mpi": {"implementation": other}})
    job("long", ["true", *["word"] * 1000], **INSTALLED["intel"].spec())
    module_namespace.apply(*jobs)
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
    wanted = ([word.replace("$$", "$") for word in WORDS], "two  words", "")
    assert all((rank["words"], rank["greeting"], rank["input"]) == wanted for rank in ranks)


@each
def test_the_exit_code_of_a_failed_rank_is_that_of_the_attempt(namespace: Namespace, name: str) -> None:
    (error,) = namespace.wait_phase(f"meet-{name}", "Succeeded")["errors"]
    assert (error["attempt"], error["reason"], error["exitCode"]) == (1, "RankFailed", 7)
    assert "xit code" in error["message"]


@each_hydra
def test_ranks_that_handle_sigterm_can_save_each_in_its_own_time(namespace: Namespace, share: Path, name: str) -> None:
    first, second = (f"save-{name}-worker-{index}" for index in (0, 1))
    ranks = [share / f"{first}-{rank}" for rank in (0, 1, 2)] + [share / f"{second}-{rank}" for rank in (3, 4, 5)]
    wait_for("all ranks in their places", lambda: all(file.exists() for file in ranks))
    namespace.change(f"save-{name}", {"runPolicy": {"suspend": True}})
    wait_for("no pods", lambda: not namespace.pods(f"save-{name}"))
    saved = {file.name for file in share.glob(f"save-{name}-*-saved")}
    assert saved == {f"{ranks[rank].name}-saved" for rank in (0, 1, 2, 5)}
    assert namespace.wait_phase(f"save-{name}", "Suspended")["restarts"] == 0


@each_hydra
def test_a_launchers_own_command_needs_no_options_for_hosts_and_ssh(namespace: Namespace, name: str) -> None:
    """If the launcher hosts ranks, it is the first of the hosts."""
    namespace.wait_phase(f"own-{name}", "Succeeded")
    pods = [f"own-{name}-{replica}" for replica in ("launcher", "launcher", "worker-1", "worker-1")]
    assert sorted(namespace.output(f"own-{name}")) == [f"{rank} {pod}" for rank, pod in enumerate(pods)]


def test_more_arguments_than_intel_mpi_supports_are_rejected(namespace: Namespace) -> None:
    (error,) = namespace.wait_phase("long", "Failed")["errors"]
    assert error["reason"] == "LauncherFailed"
    assert "have 1003 words, and Intel MPI takes 1000" in error["message"]


@pytest.mark.parametrize(("name", "specified"), OTHERS)
def test_an_image_with_another_mpi_than_the_spec_is_reported(namespace: Namespace, name: str, specified: str) -> None:
    (error,) = namespace.wait_phase(f"other-{name}", "Failed")["errors"]
    found = INSTALLED[name].implementation
    assert error["reason"] == "LauncherFailed"
    assert f"the image is {found}'s and spec.mpi.implementation is {specified}: set it to {found}" in error["message"]
