"""A launcher that hosts ranks too: replica 0 of the job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from e2e.access import wait_for
from e2e.space import Space, volume

RANK = (
    'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $HOROVODJOB_POD with $(cat /tmp/prepared) $WORDS"; '
    '[ -z "$WAIT" ] || until [ -e /tmp/go ]; do sleep 0.1; done'
)
SAVES = """
import os, signal, sys, time
def save(*_):
    time.sleep(2)
    open(f"/data/saved-{os.environ['OMPI_COMM_WORLD_RANK']}", "w").close()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(0.1)
"""
WORDS = 'it\'s "odd" $HOME `x` \\ é'
AS_WORKER = {"asWorker": True}
PREPARE = {"preparation": {"command": "printf 'words of %s' $HOROVODJOB_POD >/tmp/prepared"}}
ENV = {"env": [{"name": "WORDS", "value": WORDS}]}


def test_ranks_0_and_1_are_on_the_launcher_and_the_others_follow(space: Space) -> None:
    env = {"env": [*ENV["env"], {"name": "WAIT", "value": "1"}]}
    space.apply(space.job("both", RANK, worker={"replicas": 2, "slots": 2}, launcher=AS_WORKER, **PREPARE, **env))
    status = space.wait("both", "all replicas", lambda s: s["phase"] == "Running" and s["workersReady"] == "2/2")
    assert status["replicas"] == 2
    pods = space.pods("both")
    assert set(pods) == {"both-launcher", "both-worker-1"}
    addresses = [pods[name]["status"]["podIP"] for name in ("both-launcher", "both-worker-1")]
    hosts = space.exec("both-worker-1", "cat", "/run/horovodjob/hostfile")
    assert hosts.splitlines() == [f"{address} slots=2" for address in addresses]
    space.release("both-launcher", "both-worker-1")
    space.wait_phase("both", "Succeeded")
    replicas = ("both-launcher", "both-launcher", "both-worker-1", "both-worker-1")
    assert sorted(space.output("both")) == [
        f"rank {rank} of 4 on {pod} with words of {pod} {WORDS}" for rank, pod in enumerate(replicas)
    ]


def test_one_replica_is_the_launcher_alone(space: Space) -> None:
    worker = {"replicas": 1, "slots": 2}
    space.apply(
        space.job("one", RANK, worker=worker, launcher=AS_WORKER, **PREPARE),
        space.job(
            "bad", RANK, launcher=AS_WORKER, preparation={"command": "echo no; exit 4"}, runPolicy={"backoffLimit": 0}
        ),
    )
    space.wait_phase("one", "Succeeded")
    assert {pod["metadata"]["name"] for pod in space.pods_ever("one")} == {"one-launcher"}
    assert len(space.output("one")) == 2
    (error,) = space.wait_phase("bad", "Failed")["errors"]
    assert error["reason"] == "PreparationFailed"
    node = space.pods("bad")["bad-launcher"]["spec"]["nodeName"]
    assert f"the launcher on node {node}: the preparation ended with exit code 4: no" in error["message"]


def test_its_ranks_can_save_like_all_others(space: Space, shared_directory: Callable[[str], Path]) -> None:
    directory = shared_directory(space.name)
    volumes, mounts = volume(space, directory)
    program = ["python3", "-c", SAVES]
    shared = {"volumes": volumes, "volumeMounts": mounts}
    space.apply(space.job("saves", program, worker={"replicas": 2}, launcher=AS_WORKER, **shared))
    wait_for("both ranks", lambda: "saves-launcher" in space.pods() and space.log("saves-launcher").count("ready") == 2)
    space.change("saves", {"runPolicy": {"suspend": True}})
    space.wait("saves", "no pods", lambda s: s["phase"] == "Suspended" and not s["replicas"])
    assert {file.name for file in directory.iterdir()} == {"saved-0", "saved-1"}
