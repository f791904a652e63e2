"""Trainings that make no progress in real pods: what the job says, which rank it names, and how the attempt ends.

The jobs run beside each other, because most of the time they wait for limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.faults.links import parted
from e2e.namespace import RARELY, Namespace, volume
from localcluster.settings import Cluster
from support.api_client import Object

TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1", "--log-seconds", "1"]
# The shortest deadline; a stall is reported earlier.
DEADLINE = 60
# The deputy of a rank 0 that does not answer is believed when rank 0 has been silent for 60 s, and asks twice a minute.
LATE_DEADLINE = 100
SOON = {"name": "HVD_STALL_SECONDS", "value": "8"}
STOP_RANK = """
for environ in $(grep -lz '^OMPI_COMM_WORLD_RANK=1$' /proc/[0-9]*/environ); do
    process=${environ%/environ}
    case $(cat "$process/comm") in python*) ;; *) continue ;; esac
    grep -q watch_process "$process/cmdline" || kill -STOP "${process#/proc/}"
done
"""
# All processes of the pod but this one: ranks, their watch processes, orted and sshd. Process 1 ignores the signal.
STOP_POD = "for each in /proc/[0-9]*; do pid=${each#/proc/}; [ $pid = $$ ] || kill -STOP $pid; done"
DEADLINES = {"hangs": DEADLINE, "frozen": LATE_DEADLINE, "parted": DEADLINE}
NO_STEP = r"no step since \d\d:\d\d:\d\dZ \(usual: [\d.]+ s\): "
SILENT = "does not answer: its pod, its node or the network to it has failed; the other rank waits in the exchange"


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    return shared_directory("stalls")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, directory: Path) -> Namespace:
    """The namespace with the jobs, each of which has a checkpoint."""
    volumes, mounts = volume(module_namespace, directory)

    def job(name: str) -> Object:
        return module_namespace.job(
            name,
            [*TRAIN, "--dir", f"/data/{name}", "--epochs", "10000", "--checkpoint-steps", "10"],
            worker={"replicas": 2},
            env=[RARELY, SOON],
            runPolicy={"progressDeadlineSeconds": DEADLINES[name]},
            volumes=volumes,
            volumeMounts=mounts,
            logs={"pathPrefix": "/data/logs"},
        )

    module_namespace.apply(*map(job, DEADLINES))
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


def progressing(namespace: Namespace, name: str, reason: str, status: str = "False") -> str:
    """Waits for the condition, and returns its message."""

    def has(_: Object) -> bool:
        found = namespace.condition(name, "Progressing")
        return (found.get("status"), found.get("reason")) == (status, reason)

    namespace.wait(name, f"Progressing={status} {reason}", has)
    return str(namespace.condition(name, "Progressing")["message"])


def end_of_attempt(namespace: Namespace, name: str) -> tuple[Object, Any]:
    """The status after the first attempt, and its error."""
    status = namespace.wait(name, "the end of the attempt", lambda status: status["attempt"] == 2)
    return status, status["errors"][-1]


def test_a_stopped_rank_is_named_with_its_node(namespace: Namespace, nodes: dict[str, str]) -> None:
    message = progressing(namespace, "hangs", "TrainingStalled")
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
    message = progressing(namespace, "parted", "TrainingStalled")
    expected = rf"{NO_STEP}rank 1 \(worker 1, node {re.escape(nodes['parted'])}\) {SILENT}"
    assert re.fullmatch(expected, message), message
    namespace.change("parted", {"runPolicy": {"suspend": True}})
    namespace.wait_phase("parted", "Suspended")
    assert namespace.condition("parted", "Progressing") == {}
    namespace.change("parted", {"runPolicy": {"suspend": False}})
    status = namespace.wait("parted", "steps", lambda status: status.get("training", {}).get("step"))
    assert progressing(namespace, "parted", "StepsCompleted", "True")
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
    progressing(namespace, "hangs", "StepsCompleted", "True")
    namespace.delete("hangs")


def test_a_pod_of_rank_0_in_which_nothing_runs_is_found_by_a_rank_in_another_pod(
    namespace: Namespace, nodes: dict[str, str]
) -> None:
    status, error = end_of_attempt(namespace, "frozen")
    assert (error["reason"], error["pod"]) == ("ProgressDeadlineExceeded", "frozen-worker-0")
    assert re.match(rf"{NO_STEP}rank 0 \(worker 0, node \S+\) {SILENT}", error["message"]), error
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    namespace.delete("frozen")
