"""A node that does not answer any more: its kubelet stands still, and everything on it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from cluster.processes import Processes
from e2e.access import Api, Kubectl, wait_for
from e2e.install import Target
from e2e.space import Space

NODE = "/api/v1/nodes/node1"
# Kubernetes waits for five minutes otherwise, and for half a minute more.
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
HASTY = {"spec": {"tolerations": [{**UNREACHABLE, "tolerationSeconds": 1}], "terminationGracePeriodSeconds": 1}}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
RANK = '[ "$HOROVODJOB_ATTEMPT" != 1 ] || exec sleep 3600; echo done'


@pytest.fixture
def kubelet(target: Target) -> int:
    """The process that speaks for the node."""
    if not target.local:
        pytest.skip("only the local cluster's kubelet can be stopped")
    pid = Processes(target.local).pid("kubelet")
    assert pid
    return pid


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
    kubectl("taint", "node", "node1", f"{OUT_OF_SERVICE}=nodeshutdown:NoSchedule")
    try:
        yield
    finally:
        kubectl("taint", "node", "node1", f"{OUT_OF_SERVICE}-")


def _ready(api: Api) -> bool:
    node = api.request("GET", NODE)
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def test_a_worker_on_a_node_that_does_not_answer_is_waited_for_until_somebody_says_that_the_node_is_off(
    space: Space, api: Api, kubelet: int
) -> None:
    space.apply(space.job("lost", RANK, worker={"replicas": 1, "template": HASTY}))
    space.wait_phase("lost", "Running")

    def told(words: str) -> bool:
        return words in space.condition("lost", "Reconciling")["message"]

    with silent(kubelet, api):
        (error,) = space.wait("lost", "the worker is taken", lambda status: status["errors"], 150)["errors"]
        assert (error["reason"], error["pod"], error["node"]) == ("Evicted", "lost-worker-0", "node1")
        assert error["message"] == "worker 0 was evicted from node node1: DeletionByTaintManager"
        space.wait("lost", "what to do", lambda _: told("if that node does not answer, delete it or taint it"))
        assert told("waiting for pod lost-")
        assert told(" to go, which node node1 should have ended by ")
        assert space.status("lost")["phase"] == "Restarting"
        with out_of_service(space.kubectl):
            space.wait("lost", "a new worker", lambda _: told("waiting for nodes: 0/1 nodes are available"))
    # A pod that is placed while Kubernetes takes its own taints off may be taken once more.
    status = space.wait_phase("lost", "Succeeded", seconds=120)
    assert (status["restarts"], {one["reason"] for one in status["errors"]}) == (0, {"Evicted"})
