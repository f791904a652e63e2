"""A launcher that hosts ranks too: replica 0 of the job. All jobs run side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.namespace import HELD, Namespace, volume
from support.api_client import Object

RANK = (
    'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $HOROVODJOB_POD with $(cat /tmp/prepared) $WORDS"; '
    f'[ -z "$WAIT" ] || {HELD}'
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
PREPARE = {"preparation": {"command": "printf 'words of %s' $HOROVODJOB_POD >/tmp/prepared"}}
ENV = [{"name": "WORDS", "value": WORDS}]
TWO_BY_TWO = {"replicas": 2, "slots": 2}


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    return shared_directory("launcher-as-worker")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, directory: Path) -> Namespace:
    """The namespace, with all jobs in it."""
    volumes, mounts = volume(module_namespace, directory)

    def job(name: str, command: list[str] | str, **spec: Any) -> Object:
        return module_namespace.job(name, command, launcher={"asWorker": True}, **spec)

    module_namespace.apply(
        job("both", RANK, worker=TWO_BY_TWO, env=[*ENV, {"name": "WAIT", "value": "1"}], **PREPARE),
        job("one", RANK, worker={"replicas": 1, "slots": 2}, **PREPARE),
        job("bad", RANK, preparation={"command": "echo no; exit 4"}, runPolicy={"backoffLimit": 0}),
        job("saves", ["python3", "-c", SAVES], worker={"replicas": 2}, volumes=volumes, volumeMounts=mounts),
    )
    return module_namespace


def test_the_launcher_hosts_ranks_0_and_1_and_the_worker_the_others(namespace: Namespace) -> None:
    status = namespace.wait("both", "all replicas", lambda s: s["phase"] == "Running" and s["workersReady"] == "2/2")
    assert status["replicas"] == 2
    pods = namespace.pods("both")
    assert set(pods) == {"both-launcher", "both-worker-1"}
    addresses = [pods[name]["status"]["podIP"] for name in ("both-launcher", "both-worker-1")]
    hosts = namespace.exec("both-worker-1", "cat", "/run/horovodjob/hostfile")
    assert hosts.splitlines() == [f"{address} slots=2" for address in addresses]
    namespace.release("both-launcher", "both-worker-1")
    namespace.wait_phase("both", "Succeeded")
    replicas = ("both-launcher", "both-launcher", "both-worker-1", "both-worker-1")
    assert sorted(namespace.output("both")) == [
        f"rank {rank} of 4 on {pod} with words of {pod} {WORDS}" for rank, pod in enumerate(replicas)
    ]


def test_one_replica_runs_in_the_launcher_which_reports_its_own_preparation(namespace: Namespace) -> None:
    namespace.wait_phase("one", "Succeeded")
    assert [pod["metadata"]["name"] for pod in namespace.pods_ever("one")] == ["one-launcher"]
    assert len(namespace.output("one")) == 2
    (error,) = namespace.wait_phase("bad", "Failed")["errors"]
    assert error["reason"] == "PreparationFailed"
    node = namespace.pods("bad")["bad-launcher"]["spec"]["nodeName"]
    assert f"the launcher on node {node}: the preparation ended with exit code 4: no" in error["message"]


def test_ranks_on_the_launcher_can_save(namespace: Namespace, directory: Path) -> None:
    wait_for(
        "both ranks",
        lambda: "saves-launcher" in namespace.pods() and namespace.log("saves-launcher").count("ready") == 2,
    )
    namespace.change("saves", {"runPolicy": {"suspend": True}})
    wait_for("no pods", lambda: not namespace.pods("saves"))
    assert {file.name for file in directory.iterdir()} == {"saved-0", "saved-1"}
