"""Trainings in real pods that make no progress, or lose time: what the job says, and how the attempt ends.

The jobs run beside each other, because most of the time they wait for limits.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.examples import User
from e2e.faults.links import parted
from e2e.install import ROOT, Target
from e2e.namespace import OWN_MODULES, RARELY, SELDOM, SLEEPING, SLOW_NETWORK, SLOWLY, Namespace, volume
from e2e.training.storage import MOUNT_ROOT, SHARE, StorageAccount
from localcluster.settings import Cluster
from support.api_client import Object
from support.tutorial import page
from support.waiting_ranks import sleeping_library

DELAYS = Path(__file__).parent / "programs" / "delays.py"

# The shortest deadline; a stall is reported earlier.
DEADLINE = 60
# The deputy of a rank 0 that does not answer is believed when rank 0 has been silent for 60 s, and asks twice a minute.
LATE_DEADLINE = 100
STALL_SECONDS, SLOW_SECONDS = 8, 9
SOON = {"name": "HVD_STALL_SECONDS", "value": str(STALL_SECONDS)}
SLOW = {"name": "HVD_SLOW_RANK_SECONDS", "value": str(SLOW_SECONDS)}
STOP_RANK = """
for environ in $(grep -lz '^OMPI_COMM_WORLD_RANK=1$' /proc/[0-9]*/environ); do
    process=${environ%/environ}
    case $(cat "$process/comm") in python*) ;; *) continue ;; esac
    grep -q watch_process "$process/cmdline" || kill -STOP "${process#/proc/}"
done
"""
# All processes of the pod but this one: ranks, their watch processes, orted and sshd. Process 1 ignores the signal.
STOP_POD = "for each in /proc/[0-9]*; do pid=${each#/proc/}; [ $pid = $$ ] || kill -STOP $pid; done"
RESTART_SECONDS, LOST_STEPS_SECONDS = 10, 2  # as delays.py ends its first attempt: six steps of 0.4 s
DEADLINES = {"hangs": DEADLINE, "frozen": LATE_DEADLINE, "parted": DEADLINE}
AHEAD_STEPS = 10  # a rank reads fewer further batches until it sees the file that stops it
NO_STEP = r"no step since \d\d:\d\d:\d\dZ \(usual: [\d.]+ s\): "
SILENT = "does not answer: its pod, its node or the network to it has failed; the other rank waits in the exchange"


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    made = shared_directory("stalls")
    assert sleeping_library(made), "without a C compiler, ranks that wait use all processors"
    return made


@pytest.fixture(scope="module")
def account(local: Cluster) -> Iterator[StorageAccount]:
    """The storage account with the input of one job."""
    made = StorageAccount(local, SHARE)
    made.write("examples", "1")
    yield made
    made.command("remove")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, directory: Path, account: StorageAccount) -> Namespace:
    """The namespace with the jobs, each of which has a checkpoint."""
    volumes, mounts = volume(module_namespace, directory)
    for program in (DELAYS, SLOW_NETWORK):
        shutil.copy(program, directory)
    delays = module_namespace.job(
        "delays",
        ["python", "/data/delays.py", "/data", f"{MOUNT_ROOT}/{SHARE}"],
        worker={"replicas": 2},
        env=[RARELY, SLEEPING, SOON, SLOW],
        volumes=volumes,
        volumeMounts=mounts,
        azureFiles=[account.mounted(readOnly=True)],
    )

    def job(name: str) -> Object:
        return module_namespace.job(
            name,
            [*SLOWLY, "--dir", f"/data/{name}", "--epochs", "10000", "--checkpoint-steps", "10"],
            worker={"replicas": 2},
            env=[SELDOM, SLEEPING, SOON, OWN_MODULES],
            runPolicy={"progressDeadlineSeconds": DEADLINES[name]},
            volumes=volumes,
            volumeMounts=mounts,
            logs={"pathPrefix": "/data/logs"},
        )

    module_namespace.stalled.add("delays")
    module_namespace.apply(account.secret(), delays, *map(job, DEADLINES))
    for name in DEADLINES:
        module_namespace.wait(name, "steps", lambda status: status.get("training", {}).get("step"))
        assert module_namespace.condition(name, "Progressing")["status"] == "True"

    def have_checkpoints() -> bool:
        return all(list(directory.glob(f"{name}/checkpoint-*.h5")) for name in DEADLINES)

    wait_for("a checkpoint of each job", have_checkpoints)
    return module_namespace


@pytest.fixture(scope="module")
def nodes(namespace: Namespace, local: Cluster) -> Iterator[dict[str, str]]:
    """The nodes of worker 1 of the jobs; the training of all of them is disturbed."""
    found = {name: next(iter(namespace.nodes_of(f"{name}-worker-1"))) for name in DEADLINES}
    namespace.stalled |= set(DEADLINES)
    namespace.exec("frozen-worker-0", "sh", "-c", STOP_POD)
    namespace.exec("hangs-worker-1", "sh", "-c", STOP_RANK)
    with parted(namespace, local, "parted-worker-0", "parted-worker-1"):
        yield found


def end_of_attempt(namespace: Namespace, name: str) -> tuple[Object, Any]:
    """The status after the first attempt, and its error."""
    status = namespace.wait(name, "the end of the attempt", lambda status: status["attempt"] == 2)
    return status, status["errors"][-1]


def test_a_stopped_rank_is_named_with_its_node(namespace: Namespace, nodes: dict[str, str]) -> None:
    message = namespace.wait_progressing("hangs", "TrainingStalled")
    expected = (
        rf"{NO_STEP}rank 1 \(worker 1, node {re.escape(nodes['hangs'])}\) is stopped; the other rank waits in the "
        "exchange"
    )
    assert re.fullmatch(expected, message), message
    assert namespace.status("hangs")["phase"] == "Running"
    wait_for("its event", lambda: "TrainingStalled" in namespace.events("hangs"))


def test_a_network_that_drops_packets_between_two_workers_is_named_and_a_suspension_ends_the_stall(
    namespace: Namespace, nodes: dict[str, str]
) -> None:
    message = namespace.wait_progressing("parted", "TrainingStalled")
    expected = rf"{NO_STEP}rank 1 \(worker 1, node {re.escape(nodes['parted'])}\) {SILENT}"
    assert re.fullmatch(expected, message), message
    namespace.change("parted", {"runPolicy": {"suspend": True}})
    namespace.wait_phase("parted", "Suspended")
    assert namespace.condition("parted", "Progressing") == {}
    namespace.change("parted", {"runPolicy": {"suspend": False}})
    status = namespace.wait("parted", "steps", lambda status: status.get("training", {}).get("step"))
    assert namespace.wait_progressing("parted", "StepsCompleted", "True")
    assert (status["restarts"], status.get("errors", [])) == (0, [])
    namespace.delete("parted")


def test_the_job_restarts_at_the_deadline_from_its_checkpoint(
    namespace: Namespace, nodes: dict[str, str], directory: Path
) -> None:
    status, error = end_of_attempt(namespace, "hangs")
    logs = directory / "logs" / status["outputPathSegment"] / "stdouterr"
    assert (error["reason"], error["pod"], error["node"]) == (
        "ProgressDeadlineExceeded",
        "hangs-worker-1",
        nodes["hangs"],
    )
    assert re.match(f"{NO_STEP}rank 1 ", error["message"]), error
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    stacks = (logs / "stacks-attempt-1.txt").read_text()
    assert "rank 1, innermost frame first:\nthe process is stopped" in stacks, stacks
    assert re.search(r"^rank 0, innermost frame first:\n  File ", stacks, re.MULTILINE), stacks
    resumed = "Attempt 2: resuming after epoch"
    wait_for("it to resume", lambda: resumed in (logs / "stdout.txt").read_text())
    namespace.wait_progressing("hangs", "StepsCompleted", "True")
    namespace.delete("hangs")


def test_a_pod_of_rank_0_in_which_nothing_runs_is_found_by_a_rank_in_another_pod_and_replaced(
    namespace: Namespace, nodes: dict[str, str]
) -> None:
    status, error = end_of_attempt(namespace, "frozen")
    found = rf"{NO_STEP}rank 0 \(worker 0, node \S+\) {SILENT}"
    assert (error["reason"], error["pod"]) == ("ProgressDeadlineExceeded", "frozen-worker-0")
    assert re.match(found, error["message"]), error
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    said = [message for reason, message in namespace.conditions("frozen", "Progressing") if reason == "TrainingStalled"]
    assert said, "the condition says so before the deadline"
    assert all(re.fullmatch(found, message) for message in said), said
    namespace.wait_progressing("frozen", "StepsCompleted", "True")
    pods = [pod for pod in namespace.pods_ever("frozen") if pod["metadata"]["name"] == "frozen-worker-0"]
    assert len(pods) == 2, "sshd of the first one does not answer"
    namespace.delete("frozen")


@pytest.fixture(scope="module")
def times(namespace: Namespace, directory: Path) -> Callable[[int], Any]:
    """What rank 0 of the job with delays has measured in an attempt."""

    def of(attempt: int) -> Any:
        text = (directory / f"times-{attempt}").read_text()
        return [json.loads(line) for line in text.splitlines()]

    namespace.wait("delays", "the restart", lambda status: status["attempt"] == 2)
    namespace.wait("delays", "attempt 2", lambda status: status["phase"] == "Running")
    wait_for("its steps", lambda: (directory / "times-2").exists() and len(of(2)) > 3)
    return of


@pytest.fixture
def stopped_daemons(namespace: Namespace, times: Callable[[int], Any]) -> Iterator[Callable[[], None]]:
    """Stops mpirun and a daemon of the job with delays, of which the training needs neither; continues them."""
    daemons = {"delays-launcher": "mpirun", "delays-worker-1": "orted"}

    def send(signal: str) -> None:
        for pod, name in daemons.items():
            namespace.exec(pod, "pkill", signal, "-x", name)

    send("-STOP")
    yield lambda: send("-CONT")
    send("-CONT")


@pytest.fixture
def slow(directory: Path) -> Iterator[Path]:
    """While this file exists, the batches of rank 1 of the job with delays are late."""
    file = directory / "slow"
    file.touch()
    yield file
    file.unlink(missing_ok=True)


def test_the_training_goes_on_while_mpirun_and_its_daemons_are_stopped_and_a_slow_rank_is_named(
    namespace: Namespace,
    times: Callable[[int], Any],
    stopped_daemons: Callable[[], None],
    slow: Path,
    target: Target,
    tmp_path: Path,
) -> None:
    named = namespace.wait("delays", "a slow rank", lambda status: status["training"].get("slowestRank"))
    found = named["training"]["slowestRank"]
    (node,) = namespace.nodes_of("delays-worker-1")
    assert found == {"rank": 1, "pod": "delays-worker-1", "node": node, "ratio": found["ratio"], "section": "input"}
    assert found["ratio"] > 1.5
    user = User(namespace, target, tmp_path)
    shown = user.run(f"hvj job top -n delays -w {namespace.name} -o json")
    notes = {record["podName"]: record["note"] for record in json.loads(shown)}
    assert re.fullmatch(r"rank 1 is slow: \d\.\d\d times the median, mostly input", notes["delays-worker-1"])
    assert not notes["delays-worker-0"]
    (stacks,) = page.blocks(ROOT / "docs" / "stalls.md", "sh")
    commands = stacks.replace("-n train ", "-n delays ").replace("--rank 5", "--rank 1")
    printed = user.run(commands)
    assert len(re.findall(r"^ranks? .*innermost frame first", printed, re.MULTILINE)) >= 2, printed
    steps = len(times(2))
    wait_for("further steps", lambda: len(times(2)) > steps + 3)
    assert namespace.condition("delays", "Progressing")["status"] == "True"
    assert "SlowRank: rank 1" not in namespace.log("delays-launcher"), "mpirun copies no output"
    slow.unlink()
    namespace.wait("delays", "no slow rank", lambda status: "slowestRank" not in status["training"])
    stopped_daemons()
    log = "SlowRank: rank 1 on delays-worker-1 needs"
    wait_for("the line of the log", lambda: log in namespace.log("delays-launcher"))
    notes_of_events = namespace.event_notes("delays", "SlowRank")
    assert [note for note in notes_of_events if note.startswith(f"rank 1 (delays-worker-1, node {node}) needs")]


@pytest.fixture(scope="module")
def share_stall(namespace: Namespace, times: Callable[[int], Any], account: StorageAccount, directory: Path) -> str:
    """What the job with delays says in a stall that begins and ends with that of its share."""

    def read() -> list[int]:
        """The last batch of each rank, which the training has not got yet: tf.data reads ahead."""
        return [int((directory / f"read-{rank}").read_text()) for rank in range(2)]

    last = max(read()) + AHEAD_STEPS
    waits = directory / "waits"
    waits.with_suffix(".new").write_text(str(last))
    waits.with_suffix(".new").rename(waits)
    wait_for("all ranks to wait for this batch", lambda: read() == [last, last] and times(2)[-1]["step"] == last - 1)

    file = f"/mnt/batchai/mounts/{SHARE}/examples"
    places = rf"all 2 ranks are at the same place: each waits in the kernel \(request_wait_answer\), with {file}"
    expected = rf"{NO_STEP}{places}: the share or the volume of the data may hang"

    def is_blamed(_: Object) -> Any:
        return re.fullmatch(expected, namespace.condition("delays", "Progressing").get("message", ""))

    account.command("block")  # every call takes until the client of the share gives up, and the program tries again
    try:
        (directory / "go").touch()
        namespace.wait("delays", "a sentence about the share", is_blamed)
        said = namespace.condition("delays", "Progressing")["message"]
    finally:
        account.command("unblock")
    namespace.wait_progressing("delays", "StepsCompleted", "True")
    return str(said)


def test_an_input_that_hangs_on_all_ranks_is_blamed_on_the_share(share_stall: str) -> None:
    assert share_stall.endswith("the share or the volume of the data may hang")


def test_the_goodput_of_a_job_has_a_cause_for_each_second(
    namespace: Namespace, times: Callable[[int], Any], share_stall: str, directory: Path
) -> None:
    """What each cause has is compared in tests/trainer/run/test_lost_time.py."""
    assert times(1)
    assert share_stall
    (directory / "end").touch()
    status = namespace.wait_phase("delays", "Succeeded")
    goodput = status["training"]["goodput"]
    seconds = goodput["seconds"]
    began, ended = (datetime.fromisoformat(status[name]).timestamp() for name in ("startTime", "completionTime"))
    assert sum(seconds.values()) == round(ended - began - goodput.get("queuedSeconds", 0))
    assert seconds["restartDelay"] == pytest.approx(RESTART_SECONDS, abs=2)
    assert seconds["lostSteps"] >= LOST_STEPS_SECONDS
    assert seconds["stalled"] >= STALL_SECONDS
    assert goodput["percent"] == pytest.approx(100 * seconds["steps"] / sum(seconds.values()), abs=1)
