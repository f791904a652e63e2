"""Fixtures of the tests of the trainer: real ranks under mpirun, images, and archives with the layout of CIFAR-10."""

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.settings import ROOT
from support import forked_python
from support.tutorial import page
from support.tutorial.cifar import cifar_members, write_archive
from support.waiting_ranks import sleeping_library
from trainer.support.background_job import Job
from trainer.support.waiting import TIMEOUT_SECONDS

PRELOADED = ("tensorflow", "keras", "horovod.tensorflow", "h5py", "absl.logging", "click", "yaml")
# Variables of a launcher of the tests. With PYTHONUNBUFFERED, mpirun mixes parts of the lines of different ranks.
REMOVED = ("OMPI_", "PMIX_", "PMI_", "HOROVOD", "TF_", "TRAINER_", "XDG_CACHE_HOME", "PYTHONUNBUFFERED")

# Their ranks mostly wait. They come first, while other stages use the processors.
WAITING_FILES = (
    "test_slow_ranks",
    "test_stalls",
    "test_elastic_training",
    "test_lost_time",
    "test_leaving_ranks",
    "test_unresponsive_data",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the files that wait."""
    order = {name: index for index, name in enumerate(WAITING_FILES)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended: the exit code of mpirun and the output of all ranks."""

    code: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.startswith("horovodjob_trainer: ")]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED)}
    # There are more ranks than processors, and by default each rank polls a thousand times per second. A longer cycle
    # makes each exchange slower.
    clean["HOROVOD_CYCLE_TIME"] = "3"
    if library := sleeping_library(tmp_path_factory.mktemp("library")):
        clean["LD_PRELOAD"] = str(library)
    return clean | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="session")
def mpirun() -> Callable[[int, Sequence[str]], list[str]]:
    def command(ranks: int, program: Sequence[str]) -> list[str]:
        options = ["--oversubscribe", "--bind-to", "none", "-mca", "mpi_yield_when_idle", "1"]
        network = ["-mca", "btl", "self,tcp", "-mca", "btl_tcp_if_include", "lo", "-mca", "oob_tcp_if_include", "lo"]
        return ["mpirun", "-np", str(ranks), *options, *network, *program]

    return command


@pytest.fixture(scope="session")
def run(mpirun: Callable[[int, Sequence[str]], list[str]], environment: dict[str, str]) -> Callable[..., Ended]:
    """Runs a program on this number of ranks until it ends."""

    def ended(ranks: int, program: Sequence[str], extra: Mapping[str, str] | None = None) -> Ended:
        done = subprocess.run(
            mpirun(ranks, program),
            env=environment | dict(extra or {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return ended


@pytest.fixture(scope="session")
def fork_server(environment: dict[str, str]) -> Callable[..., AbstractContextManager[list[str]]]:
    """Starts a server that forks Python processes with these modules already imported.

    It returns the beginning of the command line of such a process, which replaces `python`.
    """

    @contextmanager
    def started(*modules: str, python: str = sys.executable, **variables: str) -> Iterator[list[str]]:
        own = {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment | variables
        with forked_python.fork_server(modules, own, python) as socket:
            yield forked_python.client_command(socket)

    return started


@pytest.fixture(scope="session")
def preloaded_python(fork_server: Callable[..., AbstractContextManager[list[str]]]) -> Iterator[list[str]]:
    """Python in a process that has imported TensorFlow, for tests that do not test the start of a process."""
    with fork_server(*PRELOADED) as command:
        yield command


@pytest.fixture(scope="session")
def trainer(preloaded_python: list[str]) -> Callable[..., list[str]]:
    """The command line of the trainer in a process that has imported TensorFlow."""

    def command(*flags: object) -> list[str]:
        return [*preloaded_python, "-m", "horovodjob_trainer", *map(str, flags)]

    return command


@pytest.fixture(scope="session")
def fresh_trainer() -> Callable[..., list[str]]:
    """The command line of the trainer, as a job starts it."""

    def command(*flags: object) -> list[str]:
        return [sys.executable, "-m", "horovodjob_trainer", *map(str, flags)]

    return command


@pytest.fixture
def train_digits(run: Callable[..., Ended], trainer: Callable[..., list[str]], tmp_path: Path) -> Callable[..., Ended]:
    """Trains the model of `build(shape, classes)` in this source on the digits. Its output is below `out`."""

    def ended(ranks: int, source: str, *flags: object, **variables: str) -> Ended:
        (tmp_path / "own.py").write_text(textwrap.dedent(source))
        data = ("--dataset", "digits", "--model", "own:build", "--dir", tmp_path / "out")
        program = trainer(*data, "--threads", 1, "--tensorboard", "none", *flags)
        return run(ranks, program, {"PYTHONPATH": str(tmp_path), **variables})

    return ended


@pytest.fixture
def start(mpirun: Any, environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts ranks of a command in the background, two unless given; they end with the test."""
    announce = ["sh", "-c", 'echo "$$" > "$0/pid-$OMPI_COMM_WORLD_RANK"; exec "$@"', str(tmp_path)]
    jobs: list[Job] = []

    def started(command: list[str], ranks: int = 2, extra: Mapping[str, str] | None = None) -> Job:
        jobs.append(Job(mpirun(ranks, [*announce, *command]), environment | dict(extra or {}), tmp_path))
        return jobs[-1]

    yield started
    for job in jobs:
        job.process.kill()
        job.process.wait()


@pytest.fixture(scope="session")
def documented_horovodrun() -> tuple[list[str], list[str]]:
    """The options of the documented command for an elastic training, and those of its trainer."""
    (command,) = page.blocks(ROOT / "docs" / "trainer-reference.md", "sh", "Elastic")
    options, program = command.replace("\\\n", " ").split(" python -m horovodjob_trainer ")
    return shlex.split(options)[1:], shlex.split(program)


@pytest.fixture(scope="session")
def horovodrun(
    environment: dict[str, str], documented_horovodrun: tuple[list[str], list[str]]
) -> Callable[[Path, Sequence[str]], AbstractContextManager[Any]]:
    """Starts an elastic program on the hosts in the file `hosts` of a directory. It ends with the context.

    The output of the ranks is in `log`; each rank appends its process ID to `pids`.
    """
    documented, _ = documented_horovodrun

    @contextmanager
    def started(directory: Path, program: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        script = directory / "discover.sh"
        script.write_text(f"#!/bin/sh\ncat {directory}/hosts\n")
        script.chmod(0o755)
        # Of an option that is given twice, the last one counts. A host that has failed does not come back here.
        ranks = ["-np", "1", "--max-np", "2", "--blacklist-cooldown-range", "600", "601"]
        # The other ranks wait while a new rank imports TensorFlow.
        own = ["--gloo-timeout-seconds", "90", "--network-interfaces", "lo", "--host-discovery-script", str(script)]
        launcher = [str(Path(sys.executable).with_name("horovodrun")), *documented, *own, *ranks]
        announce = ["sh", "-c", f'echo "$$" >> {directory}/pids; exec "$@"', "sh"]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [*launcher, *announce, *program],
                env=environment | {"TEST_DIRECTORY": str(directory)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                pids = (directory / "pids").read_text() if (directory / "pids").exists() else ""
                process.kill()
                process.wait()
                for pid in map(int, pids.split()):
                    with suppress(OSError):  # it has ended, and its ID may belong to a different process
                        if f"TEST_DIRECTORY={directory}\0" in Path(f"/proc/{pid}/environ").read_text():
                            os.kill(pid, signal.SIGKILL)

    return started


@pytest.fixture(scope="session")
def make_archive() -> Callable[..., str]:
    """Writes an archive with the layout of CIFAR-10 and returns its SHA-256; None omits a member."""

    def archive(path: Path, rows: int = 4, **replaced: bytes | None) -> str:
        members = cifar_members(rows)
        members |= {f"cifar-10-batches-py/{name}": content for name, content in replaced.items() if content}
        for name, content in replaced.items():
            if content is None:
                del members[f"cifar-10-batches-py/{name}"]
        return write_archive(path, members)

    return archive


@pytest.fixture(scope="session")
def picture() -> Callable[..., bytes]:
    """The content of an image file with a single brightness."""

    def content(brightness: int = 0, *, height: int = 24, width: int = 24, kind: str = "png") -> bytes:
        import tensorflow as tf  # for the tests that need it

        pixels = np.full((height, width, 3), brightness, np.uint8)
        encoded = tf.io.encode_jpeg(pixels, quality=95) if kind == "jpg" else tf.io.encode_png(pixels)
        return bytes(encoded.numpy())

    return content


@pytest.fixture(scope="session")
def folders(picture: Callable[..., bytes]) -> Callable[..., Path]:
    """Writes images with different brightness into one folder per class."""

    def write(root: Path, **counts: int) -> Path:
        number = 0
        for name, count in counts.items():
            (root / name).mkdir(parents=True, exist_ok=True)
            for index in range(count):
                (root / name / f"{index:03}.png").write_bytes(picture(number))
                number += 1
        return root

    return write
