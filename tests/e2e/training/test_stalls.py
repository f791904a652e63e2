"""A rank that is stopped: the job says which one on which node, and restarts from its checkpoint at the deadline."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.access import wait_for
from e2e.namespace import RARELY, Namespace, volume

TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1", "--log-seconds", "1"]
# The shortest deadline; the stall is reported earlier.
DEADLINE = 60
SOON = {"name": "HVD_STALL_SECONDS", "value": "8"}
STOP = """
for environ in $(grep -lz '^OMPI_COMM_WORLD_RANK=1$' /proc/[0-9]*/environ); do
    process=${environ%/environ}
    case $(cat "$process/comm") in python*) ;; *) continue ;; esac
    grep -q watch_process "$process/cmdline" || kill -STOP "${process#/proc/}"
done
"""


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    return shared_directory("stalls")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, directory: Path) -> Namespace:
    volumes, mounts = volume(module_namespace, directory)
    module_namespace.apply(
        module_namespace.job(
            "hangs",
            [*TRAIN, "--dir", "/data/hangs", "--epochs", "10000", "--checkpoint-steps", "10"],
            worker={"replicas": 2},
            env=[RARELY, SOON],
            runPolicy={"progressDeadlineSeconds": DEADLINE},
            volumes=volumes,
            volumeMounts=mounts,
            logs={"pathPrefix": "/data/logs"},
        )
    )
    return module_namespace


def test_a_stopped_rank_is_named_with_its_node_and_the_job_restarts_at_the_deadline(
    namespace: Namespace, directory: Path
) -> None:
    status = namespace.wait("hangs", "steps", lambda status: status.get("training", {}).get("step"))
    logs = directory / "logs" / status["outputPathSegment"] / "stdouterr"
    wait_for("a checkpoint", lambda: list(directory.glob("hangs/checkpoint-*.h5")))
    assert namespace.condition("hangs", "Progressing")["status"] == "True"
    (node,) = namespace.nodes_of("hangs-worker-1")
    namespace.exec("hangs-worker-1", "sh", "-c", STOP)

    def stall(status: object) -> bool:
        return namespace.condition("hangs", "Progressing").get("reason") == "TrainingStalled"

    namespace.wait("hangs", "the stall", stall)
    message = namespace.condition("hangs", "Progressing")["message"]
    expected = (
        rf"no step since \d\d:\d\d:\d\dZ \(usual: [\d.]+ s\): rank 1 \(worker 1, node {re.escape(node)}\) is stopped; "
        "the other rank waits in the exchange"
    )
    assert re.fullmatch(expected, message), message
    assert namespace.status("hangs")["phase"] == "Running"
    wait_for("its event", lambda: "TrainingStalled" in namespace.events("hangs"))

    status = namespace.wait("hangs", "the end of the attempt", lambda status: status["attempt"] == 2)
    error = status["errors"][-1]
    assert (error["reason"], error["pod"], error["node"]) == ("ProgressDeadlineExceeded", "hangs-worker-1", node)
    assert re.match(expected, error["message"]), error
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    stacks = (logs / "stacks-attempt-1.txt").read_text()
    assert "rank 1, innermost frame first:\nthe process is stopped" in stacks, stacks
    assert re.search(r"^rank 0, innermost frame first:\n  File ", stacks, re.MULTILINE), stacks
    resumed = "Attempt 2: resuming after epoch"
    wait_for("it to resume", lambda: resumed in (logs / "stdout.txt").read_text())
    namespace.wait("hangs", "steps", lambda _: namespace.condition("hangs", "Progressing").get("status") == "True")
    namespace.delete("hangs")
