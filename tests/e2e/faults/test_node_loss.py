"""An unreachable node: its kubelet is stopped, and its pods continue or are unreachable."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from e2e.access import Kubectl, wait_for
from e2e.faults.links import set_link
from e2e.namespace import Namespace
from localcluster.command_line import invoke
from localcluster.processes import Processes
from localcluster.settings import Cluster
from support.api_client import Api

NODES = "/api/v1/nodes"
POOL = "lossy"
NODE_NAME = f"{POOL}1"
LABEL = "e2e.horovodjob.dev/lossy"
# By default, Kubernetes waits for five and a half minutes. When the node responds again, Kubernetes removes
# its two taints one after the other, within five seconds: a pod that is scheduled between must stay.
TOLERATED_SECONDS = 15
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
ON_THE_NODE = {"nodeSelector": {LABEL: "true"}, "terminationGracePeriodSeconds": 1}
TAINT = {"key": LABEL, "operator": "Exists"}
HASTY = {"spec": {**ON_THE_NODE, "tolerations": [{**UNREACHABLE, "tolerationSeconds": TOLERATED_SECONDS}, TAINT]}}
PATIENT = {"spec": {**ON_THE_NODE, "tolerations": [TAINT]}}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
RANK = '[ "$HOROVODJOB_ATTEMPT" != 1 ] || exec sleep 3600; echo done'


@pytest.fixture
def kubelet(local: Cluster) -> Iterator[int]:
    """The kubelet of a node without other pods.

    If no node responds, Kubernetes assumes a fault of its own network and evicts no pods.
    """
    invoke(local, "nodes", "1", "--prefix", POOL, "--label", f"{LABEL}=true", "--taint", f"{LABEL}=true:NoSchedule")
    try:
        pid = Processes(local).pid(f"kubelet-{NODE_NAME}")
        assert pid
        yield pid
    finally:
        invoke(local, "nodes", "0", "--prefix", POOL)


@contextlib.contextmanager
def silent(kubelet: int, api: Api) -> Iterator[None]:
    """The node does not respond until the end of the test."""
    os.kill(kubelet, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kubelet, signal.SIGCONT)
        wait_for("the node is ready", lambda: _ready(api))


@contextlib.contextmanager
def out_of_service(kubectl: Kubectl) -> Iterator[None]:
    """Taints the node out-of-service, as an administrator does."""
    kubectl("taint", "node", NODE_NAME, f"{OUT_OF_SERVICE}=nodeshutdown:NoSchedule")
    try:
        yield
    finally:
        kubectl("taint", "node", NODE_NAME, f"{OUT_OF_SERVICE}-")


def _ready(api: Api) -> bool:
    conditions = api.request("GET", f"{NODES}/{NODE_NAME}")["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_a_worker_on_an_unreachable_node_is_replaced_after_the_out_of_service_taint(
    namespace: Namespace, api: Api, kubelet: int
) -> None:
    namespace.apply(namespace.job("lost", RANK, worker={"replicas": 1, "template": HASTY}))
    namespace.wait_phase("lost", "Running")

    def is_reported(words: str) -> bool:
        return words in namespace.condition("lost", "Reconciling")["message"]

    with silent(kubelet, api):
        (error,) = namespace.wait("lost", "the worker is deleted", lambda status: status["errors"])["errors"]
        assert (error["reason"], error["pod"], error["node"]) == ("Evicted", "lost-worker-0", NODE_NAME)
        assert error["message"] == f"worker 0 was evicted from node {NODE_NAME}: DeletionByTaintManager"
        # On a busy node, the launcher can be overdue before it.
        words = f"waiting for pod lost-worker-0 to terminate, which node {NODE_NAME} should have stopped by "
        namespace.wait("lost", "the pod that is overdue", lambda _: is_reported(words))
        remedy = "if that node does not respond, delete it or taint it node.kubernetes.io/out-of-service"
        assert is_reported(remedy)
        assert namespace.status("lost")["phase"] == "Restarting"
        with out_of_service(namespace.kubectl):
            namespace.wait("lost", "a new worker", lambda _: is_reported("waiting for nodes: 0/"))
    status = namespace.wait_phase("lost", "Succeeded")
    assert (status["restarts"], {one["reason"] for one in status["errors"]}) == (0, {"Evicted"})


def test_an_unreachable_node_causes_no_restart_and_the_next_attempt_waits_for_it(
    namespace: Namespace, api: Api, local: Cluster, kubelet: int
) -> None:
    """Kubernetes reports its pods as running for five minutes."""
    policy = {"backoffLimit": 0}
    namespace.apply(namespace.job("off", RANK, worker={"replicas": 1, "template": PATIENT}, runPolicy=policy))
    namespace.wait_phase("off", "Running")
    wait_for("the rank", lambda: namespace.processes("off-worker-0"))
    set_link(namespace, local, "off-worker-0", "down")
    with silent(kubelet, api):
        status = namespace.wait("off", "another attempt", lambda status: status["attempt"] == 2)
        (error,) = status["errors"]
        assert (error["reason"], error["pod"], error["node"]) == ("NodeLost", "off-worker-0", NODE_NAME)
        assert (status["phase"], status["restarts"], status["preemptions"]) == ("Restarting", 0, 1)
        words = "waiting for pod off-worker-0 to terminate"
        namespace.wait("off", "what to do", lambda _: words in namespace.condition("off", "Reconciling")["message"])
        launcher = namespace.pods()["off-launcher"]["metadata"]
        assert (launcher["labels"]["horovodjob.dev/attempt"], launcher["annotations"]["horovodjob.dev/hosts"]) == (
            "2",
            "",
        )
    status = namespace.wait_phase("off", "Succeeded")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 1)
