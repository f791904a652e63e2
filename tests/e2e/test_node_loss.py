"""A node that does not answer any more: its kubelet stands still, and everything on it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cluster.processes import Processes
from cluster.settings import NODE_NAME, Cluster
from e2e.access import MERGE_PATCH, Api, Kubectl, wait_for
from e2e.space import Space

pytestmark = pytest.mark.serial

NODES = "/api/v1/nodes"
NODE = f"{NODES}/{NODE_NAME}"
BYSTANDER = f"{NODES}/bystander"
# Kubernetes waits for five minutes otherwise, and for half a minute more.
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
HASTY = {"spec": {"tolerations": [{**UNREACHABLE, "tolerationSeconds": 1}], "terminationGracePeriodSeconds": 1}}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
RANK = '[ "$HOROVODJOB_ATTEMPT" != 1 ] || exec sleep 3600; echo done'


@pytest.fixture
def kubelet(local: Cluster) -> int:
    """The process that speaks for the node."""
    pid = Processes(local).pid("kubelet")
    assert pid
    return pid


@pytest.fixture
def bystander(api: Api) -> Iterator[None]:
    """Another node, which answers and takes no pods.

    Where no node answers, Kubernetes holds its own network to be at fault, and takes no pod from any.
    """
    taint = {"key": "e2e.horovodjob.dev/bystander", "effect": "NoSchedule"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bystander"}, "spec": {"taints": [taint]}}
    api.request("POST", NODES, node)
    over = threading.Event()
    heart = threading.Thread(target=_beat, args=(api, over))
    heart.start()
    try:
        wait_for("the other node is ready", lambda: _ready(api, BYSTANDER))
        yield
    finally:
        over.set()
        heart.join()
        api.request("DELETE", BYSTANDER)


def _beat(api: Api, over: threading.Event) -> None:
    """Says each five seconds that the bystander is well, as a kubelet does."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    while not over.is_set():
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}]
        api.request("PATCH", f"{BYSTANDER}/status", {"status": {"conditions": conditions}}, MERGE_PATCH)
        over.wait(5)


@contextlib.contextmanager
def silent(kubelet: int, api: Api) -> Iterator[None]:
    """The node does not answer, and afterwards it does again."""
    os.kill(kubelet, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kubelet, signal.SIGCONT)
        wait_for("the node is ready", lambda: _ready(api))


@contextlib.contextmanager
def out_of_service(kubectl: Kubectl) -> Iterator[None]:
    """An administrator says that the node is off for good."""
    kubectl("taint", "node", NODE_NAME, f"{OUT_OF_SERVICE}=nodeshutdown:NoSchedule")
    try:
        yield
    finally:
        kubectl("taint", "node", NODE_NAME, f"{OUT_OF_SERVICE}-")


def _ready(api: Api, path: str = NODE) -> bool:
    conditions = api.request("GET", path)["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_a_worker_on_a_node_that_does_not_answer_is_waited_for_until_somebody_says_that_the_node_is_off(
    space: Space, api: Api, kubelet: int, bystander: None
) -> None:
    space.apply(space.job("lost", RANK, worker={"replicas": 1, "template": HASTY}))
    space.wait_phase("lost", "Running")

    def told(words: str) -> bool:
        return words in space.condition("lost", "Reconciling")["message"]

    with silent(kubelet, api):
        (error,) = space.wait("lost", "the worker is taken", lambda status: status["errors"])["errors"]
        assert (error["reason"], error["pod"], error["node"]) == ("Evicted", "lost-worker-0", NODE_NAME)
        assert error["message"] == f"worker 0 was evicted from node {NODE_NAME}: DeletionByTaintManager"
        space.wait("lost", "what to do", lambda _: told("if that node does not answer, delete it or taint it"))
        assert told("waiting for pod lost-")
        assert told(f" to go, which node {NODE_NAME} should have ended by ")
        assert space.status("lost")["phase"] == "Restarting"
        with out_of_service(space.kubectl):
            space.wait("lost", "a new worker", lambda _: told("waiting for nodes: 0/2 nodes are available"))
    # A pod that is placed while Kubernetes takes its own taints off may be taken once more.
    status = space.wait_phase("lost", "Succeeded")
    assert (status["restarts"], {one["reason"] for one in status["errors"]}) == (0, {"Evicted"})
