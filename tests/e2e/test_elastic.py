"""Elastic jobs: workers come and go while the ranks go on with what they have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.access import wait_for
from e2e.install import Target
from e2e.space import Space, set_link, volume

# Counts steps that all ranks do together, until some rank finds the file.
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
        time.sleep(0.05)
        state.step += 1
        state.commit()
    print(f"DONE {where} step {state.step}", flush=True)

work(state)
"""
COUNT = ["python3", "-c", PROGRAM]


def ranks(space: Space, job: str, word: str) -> list[tuple[int, int, str, int]]:
    """Rank, number of ranks, pod and step of each line with this word."""
    pattern = rf"{word} rank (\d+) of (\d+) in (\S+) step (\d+)"
    found = re.findall(pattern, "\n".join(space.output(job)))
    return [(int(rank), int(size), pod, int(step)) for rank, size, pod, step in found]


def wait_for_ranks(space: Space, job: str, *pods: str) -> int:
    """The step from which ranks in exactly these pods go on, each a rank in this order."""
    wanted = [(rank, len(pods), pod) for rank, pod in enumerate(pods)]

    def look() -> Any:
        newest = ranks(space, job, "BEGIN")[-len(pods) :]
        return sorted(line[:3] for line in newest) == wanted and max(line[3] for line in newest) + 1

    return int(wait_for(f"ranks in {pods}", look, 120)) - 1


def test_workers_come_and_go_and_no_step_is_lost(space: Space) -> None:
    elastic = {"minReplicas": 1, "maxReplicas": 3, "cooldownSeconds": [1, 2]}
    space.apply(space.job("grow", COUNT, worker={"replicas": 2}, elastic=elastic))
    space.wait_phase("grow", "Running", seconds=120)
    assert wait_for_ranks(space, "grow", "grow-worker-0", "grow-worker-1") == 0
    space.kubectl("scale", "hvj/grow", "-n", space.name, "--replicas=3")
    three = wait_for_ranks(space, "grow", "grow-worker-0", "grow-worker-1", "grow-worker-2")
    assert three > 0
    assert space.status("grow")["replicas"] == 3
    space.kubectl("scale", "hvj/grow", "-n", space.name, "--replicas=2")
    two = wait_for_ranks(space, "grow", "grow-worker-0", "grow-worker-1")
    assert two >= three
    wait_for("worker 2 to go", lambda: "grow-worker-2" not in space.pods("grow"))
    space.delete_pod("grow-worker-0")
    again = wait_for_ranks(space, "grow", "grow-worker-1", "grow-worker-0")
    assert again >= two
    status = space.status("grow")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 1)
    space.release("grow-worker-1")
    space.wait_phase("grow", "Succeeded")
    told = space.events("grow")
    assert (told.count("Resized"), told.count("Preempted")) == (2, 1)
    assert len(ranks(space, "grow", "DONE")) == 2
    assert space.phases("grow") == ["Queued", "Starting", "Running", "Succeeded"]


def test_ranks_that_die_and_workers_out_of_reach_come_back(space: Space, target: Target) -> None:
    elastic, env = {"cooldownSeconds": [1, 2]}, [{"name": "HOROVOD_GLOO_TIMEOUT_SECONDS", "value": "20"}]
    space.apply(space.job("hard", COUNT, worker={"replicas": 2}, elastic=elastic, env=env))
    space.wait_phase("hard", "Running", seconds=120)
    both = ("hard-worker-0", "hard-worker-1")
    wait_for_ranks(space, "hard", *both)
    space.exec("hard-worker-1", "pkill", "-KILL", "-f", "^python3 -c")
    alone = wait_for_ranks(space, "hard", "hard-worker-0")
    assert wait_for_ranks(space, "hard", *both) >= alone
    if target.local:
        set_link(space, target.local, "hard-worker-1", "down")
        try:
            wait_for_ranks(space, "hard", "hard-worker-0")
        finally:
            set_link(space, target.local, "hard-worker-1", "up")
        wait_for_ranks(space, "hard", *both)
    status = space.status("hard")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0)
    space.release("hard-worker-0")
    space.wait_phase("hard", "Succeeded")


def test_with_too_few_workers_it_waits_and_then_fails_or_begins_another_attempt_as_it_says(space: Space) -> None:
    few = {"worker": {"replicas": 2}, "elastic": {"minReplicas": 2}, "scheduling": {"timeoutSeconds": 15}}
    fails = {"runPolicy": {"onWorkerLoss": "Fail"}}
    pairs = {"worker": {"replicas": 2, "slots": 2}}
    space.apply(space.job("few", COUNT, **few), space.job("fails", COUNT, **few | fails | pairs))
    for name, slots in (("few", 1), ("fails", 2)):
        space.wait_phase(name, "Running", seconds=120)
        wait_for_ranks(space, name, *[f"{name}-worker-{index}" for index in (0, 1) for _ in range(slots)])
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": space.name},
        "spec": {"hard": {"pods": "4"}},
    }
    space.apply(quota)
    space.delete_pod("few-worker-1", 0)
    space.delete_pod("fails-worker-1", 0)

    def waits(name: str) -> bool:
        message = space.condition(name, "Ready")["message"]
        return "1 worker of the 2 that elastic.minReplicas wants" in message and "exceeded quota" in message

    for name in ("few", "fails"):
        assert space.wait(name, "why it waits", lambda _, name=name: waits(name))["phase"] == "Running"  # type: ignore[misc]
    status = space.wait_phase("few", "Restarting")
    assert status["errors"][-1]["reason"] == "WorkerLost"
    assert "scheduling.timeoutSeconds" in status["errors"][-1]["message"]
    assert (status["restarts"], status["preemptions"]) == (0, 1)
    status = space.wait_phase("fails", "Failed")
    assert "scheduling.timeoutSeconds" in space.condition("fails", "Failed")["message"]
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 1)
    space.api.request("DELETE", f"{space.core}/resourcequotas/small")
    space.wait("few", "the second attempt", lambda status: status["phase"] == "Running", 120)
    wait_for_ranks(space, "few", "few-worker-0", "few-worker-1")
    space.release("few-worker-0")
    space.wait_phase("few", "Succeeded")


def test_the_trainer_loses_no_epoch_whatever_comes_and_goes(
    space: Space, shared_directory: Callable[[str], Path]
) -> None:
    volumes, mounts = volume(space, shared_directory(space.name))
    train = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--dir", "/data", "--threads", "1"]
    train += ["--epochs", "1000", "--commit-steps", "5", "--checkpoint-steps", "20", "--log-seconds", "1"]
    space.apply(space.job("learn", train, elastic={}, volumes=volumes, volumeMounts=mounts))
    space.wait_phase("learn", "Running", seconds=120)
    told = ""

    def wait_to_read(words: str) -> None:
        wait_for(words, lambda: words in told + space.log("learn-launcher"), 120)

    def wait_for_progress() -> int:
        before = space.status("learn").get("training", {}).get("epoch") or 0
        status = space.wait("learn", "progress", lambda s: (s.get("training", {}).get("epoch") or 0) > before, 120)
        return int(status["training"]["epoch"])

    wait_to_read("Training with 1 rank ")
    space.kubectl("scale", "hvj/learn", "-n", space.name, "--replicas=2")
    wait_to_read("Training with 2 ranks ")
    wait_for_progress()
    # Whoever has rank 0 now is the only one that has the state, and reports it.
    space.delete_pod("learn-worker-0")
    reached = wait_for_progress()
    told = space.log("learn-launcher")
    space.change("learn", {"runPolicy": {"suspend": True}})
    space.wait("learn", "no pods", lambda s: s["phase"] == "Suspended" and not s["replicas"])
    space.change("learn", {"runPolicy": {"suspend": False}})
    space.wait_phase("learn", "Running", seconds=120)
    space.wait("learn", "progress", lambda s: (s.get("training", {}).get("epoch") or 0) > reached + 1, 120)
    told += space.log("learn-launcher")
    space.change("learn", {"runPolicy": {"terminate": True}})
    epochs = [int(epoch) for epoch in re.findall(r"Epoch (\d+)/1000 \d+/\d+ .*val_loss", told)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > reached
