"""Training with the project's trainer, and log files on a shared volume. All jobs run side by side."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.access import wait_for
from e2e.namespace import RARELY, SLEEPING, Namespace, volume
from support.api_client import Object
from support.waiting_ranks import sleeping_library

EPOCH_EXAMPLES, JOB_BATCH = 1437, 2 * 32
TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1", "--log-seconds", "1"]
# It would train for an hour, so it never ends before a test interrupts it.
TRAIN += ["--dir", "/data/steady", "--epochs", "10000", "--checkpoint-steps", "10", "--keep-checkpoints", "3"]
# Prints to both streams, waits, and fails the first time.
SCRIPT = """
echo "out $HOROVODJOB_ATTEMPT $1"; echo "err $HOROVODJOB_ATTEMPT" >&2
until [ -e "/data/go-$HOROVODJOB_ATTEMPT" ]; do sleep 0.1; done
[ "$HOROVODJOB_ATTEMPT" = 2 ]
"""


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    """The volume of all jobs."""
    made = shared_directory("training")
    assert sleeping_library(made), "without a C compiler, ranks that wait use all processors"
    return made


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, directory: Path) -> Namespace:
    """The namespace, with all jobs in it."""
    volumes, mounts = volume(module_namespace, directory)
    shared: Object = {"volumes": volumes, "volumeMounts": mounts, "logs": {"pathPrefix": "/data/logs"}}
    (directory / "job.sh").write_text(SCRIPT)
    script = {"path": "/data/job.sh", "interpreter": "sh", "args": ["two words"]}

    module_namespace.apply(
        module_namespace.job("steady", TRAIN, worker={"replicas": 2}, env=[RARELY, SLEEPING], **shared),
        module_namespace.job("logged", script=script, **shared),
    )
    return module_namespace


def _position(numbers: list[str]) -> int:
    """The number of completed steps after these epochs and steps."""
    epoch, *steps = (int(number) for number in numbers)
    return -(-epoch * EPOCH_EXAMPLES // JOB_BATCH) + sum(steps)


def test_a_training_survives_a_suspension_and_the_loss_of_a_worker(namespace: Namespace, directory: Path) -> None:
    status = namespace.wait_phase("steady", "Running")
    logs = directory / "logs" / status["outputPathSegment"] / "stdouterr"

    def output_lines(pattern: str) -> list[str]:
        return re.findall(pattern, (logs / "stdout.txt").read_text(), re.MULTILINE)

    def resumed() -> list[int]:
        words = output_lines(r"^Attempt \d: resuming after (epoch .*)$")
        return [_position(re.findall(r"\d+", line)) for line in words]

    def newest_checkpoint() -> int:
        names = [path.stem.removeprefix("checkpoint-") for path in directory.glob("steady/checkpoint-*.h5")]
        return max((_position(name.split("-")) for name in names), default=0)

    wait_for("a checkpoint", newest_checkpoint)
    namespace.wait("steady", "progress", lambda status: status.get("training"))
    namespace.change("steady", {"runPolicy": {"suspend": True}})
    namespace.wait_phase("steady", "Suspended")
    wait_for("no pods", lambda: not namespace.pods("steady"))
    (stopped,) = (int(step) for step in output_lines(r"^SIGTERM: stopped after step (\d+),"))
    assert namespace.status("steady")["training"]["progress"] > 0, "what was reported before is kept"

    namespace.change("steady", {"runPolicy": {"suspend": False}})
    wait_for("it to continue at that very step", lambda: resumed() == [stopped])
    wait_for("another checkpoint", lambda: newest_checkpoint() > stopped)
    saved = newest_checkpoint()
    namespace.delete_pod("steady-worker-1", seconds=0)
    wait_for("it to continue again", lambda: len(resumed()) == 2)
    assert resumed()[1] >= saved, "nothing before the newest checkpoint is trained again"
    namespace.delete("steady")


def test_log_files_grow_while_the_job_runs_and_name_each_attempt(namespace: Namespace, directory: Path) -> None:
    status = namespace.wait_phase("logged", "Running")
    folder = directory / "logs" / status["outputPathSegment"] / "stdouterr"

    def has(name: str, text: str) -> bool:
        return (folder / name).exists() and text in (folder / name).read_text()

    wait_for("output while the job runs", lambda: has("stdout.txt", "out 1 two words\n"))
    wait_for("errors while the job runs", lambda: has("stderr.txt", "err 1\n"))
    assert has("execution-logged-launcher.log", "mpirun starts 1 ranks on 1 workers")
    assert has("execution-logged-worker-0.log", "worker starts: sshd")
    assert namespace.status("logged")["phase"] == "Running"
    (directory / "go-1").touch()
    (directory / "go-2").touch()
    namespace.wait_phase("logged", "Succeeded")
    attempt = r"--- attempt %d, \d{4}-\d\d-\d\dT[\d:]+Z ---\n%s %d%s\n"
    output, errors = ((folder / name).read_text() for name in ("stdout.txt", "stderr.txt"))
    first, second = (attempt % (number, "out", number, " two words") for number in (1, 2))
    assert re.fullmatch(first + second, output), output
    # mpirun can write warnings of its own between them.
    lines = [line for line in errors.splitlines() if line.startswith(("--- attempt", "err"))]
    expected = "".join(attempt % (number, "err", number, "") for number in (1, 2))
    assert re.fullmatch(expected, "\n".join(lines) + "\n"), errors
    assert has("execution-logged-launcher.log", "mpirun ended with exit code 0 (attempt 2)")
    assert "out 2 two words" in namespace.output("logged")
