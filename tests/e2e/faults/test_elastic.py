"""Elastic jobs: workers are added and removed while the ranks continue. Both jobs run side by side."""

from __future__ import annotations

import re
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.faults.links import set_link
from e2e.install import Target
from e2e.namespace import RARELY, Namespace

# Counts steps that all ranks execute together, until a rank finds the file.
PROGRAM = """
import os, time
import horovodjob_trainer.hvd as hvd

hvd.init()
state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0)

@hvd.elastic.run
def work(state):
    where = f"rank {hvd.rank()} of {hvd.size()} in {os.environ['HOROVODJOB_POD']}"
    print(f"BEGIN {where} step {state.step}", flush=True)
    while not any(hvd.allgather_object(os.path.exists("/tmp/go"))):
        time.sleep(0.2)
        state.step += 1
        state.commit()
    print(f"DONE {where} step {state.step}", flush=True)

work(state)
"""
COUNT = ["python3", "-c", PROGRAM]


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace) -> Namespace:
    """The namespace, with both jobs in it."""
    # Timeout of a rank that waits for an unreachable one; on a busy machine, a rank also starts slowly.
    env = [{"name": "HOROVOD_GLOO_TIMEOUT_SECONDS", "value": "60"}, RARELY]
    elastic = {"minReplicas": 1, "maxReplicas": 3, "cooldownSeconds": [1, 2]}
    module_namespace.apply(
        # A retry of a host that is still unreachable ends the attempt, so the cooldown is long.
        module_namespace.job("hard", COUNT, worker={"replicas": 2}, elastic={"cooldownSeconds": [15, 20]}, env=env),
        module_namespace.job("grow", COUNT, worker={"replicas": 2}, elastic=elastic, env=[RARELY]),
    )
    return module_namespace


def ranks(namespace: Namespace, job: str, word: str) -> list[tuple[int, int, str, int]]:
    """Rank, number of ranks, pod and step of each line with this word."""
    pattern = rf"{word} rank (\d+) of (\d+) in (\S+) step (\d+)"
    found = re.findall(pattern, "\n".join(namespace.output(job)))
    return [(int(rank), int(size), pod, int(step)) for rank, size, pod, step in found]


def wait_for_ranks(namespace: Namespace, job: str, *pods: str) -> int:
    """Waits until ranks run in exactly these pods, in this order, and returns their first step."""
    wanted = [(rank, len(pods), pod) for rank, pod in enumerate(pods)]

    def poll() -> Any:
        newest = ranks(namespace, job, "BEGIN")[-len(pods) :]
        return sorted(line[:3] for line in newest) == wanted and max(line[3] for line in newest) + 1

    return int(wait_for(f"ranks in {pods}", poll)) - 1


def test_no_step_is_lost_when_workers_are_added_and_removed(namespace: Namespace) -> None:
    namespace.wait_phase("grow", "Running")
    assert wait_for_ranks(namespace, "grow", "grow-worker-0", "grow-worker-1") == 0
    namespace.kubectl("scale", "hvj/grow", "-n", namespace.name, "--replicas=3")
    three = wait_for_ranks(namespace, "grow", "grow-worker-0", "grow-worker-1", "grow-worker-2")
    assert three > 0
    assert namespace.status("grow")["replicas"] == 3
    namespace.kubectl("scale", "hvj/grow", "-n", namespace.name, "--replicas=2")
    two = wait_for_ranks(namespace, "grow", "grow-worker-0", "grow-worker-1")
    assert two >= three
    wait_for("worker 2 to be deleted", lambda: "grow-worker-2" not in namespace.pods("grow"))
    namespace.delete_pod("grow-worker-0")
    again = wait_for_ranks(namespace, "grow", "grow-worker-1", "grow-worker-0")
    assert again >= two
    status = namespace.status("grow")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 1)
    namespace.release("grow-worker-1")
    namespace.wait_phase("grow", "Succeeded")
    assert len(ranks(namespace, "grow", "DONE")) == 2
    assert namespace.phases("grow")[-2:] == ["Running", "Succeeded"]
    assert set(namespace.phases("grow")) <= {"Queued", "Starting", "Running", "Succeeded"}


def test_killed_ranks_and_unreachable_workers_rejoin(namespace: Namespace, target: Target) -> None:
    namespace.wait_phase("hard", "Running")
    both = ("hard-worker-0", "hard-worker-1")
    wait_for_ranks(namespace, "hard", *both)
    namespace.exec("hard-worker-1", "pkill", "-KILL", "-f", "^python3 -c")
    alone = wait_for_ranks(namespace, "hard", "hard-worker-0")
    assert wait_for_ranks(namespace, "hard", *both) >= alone
    if target.local:
        set_link(namespace, target.local, "hard-worker-1", "down")
        try:
            wait_for_ranks(namespace, "hard", "hard-worker-0")
        finally:
            set_link(namespace, target.local, "hard-worker-1", "up")
        wait_for_ranks(namespace, "hard", *both)
    status = namespace.status("hard")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0)
    namespace.release("hard-worker-0")
    namespace.wait_phase("hard", "Succeeded")
