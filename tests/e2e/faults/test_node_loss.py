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
def silent(kubelet: int, kubectl: Kubectl) -> Iterator[None]:
    """The node does not respond until the end of the test."""
    os.kill(kubelet, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kubelet, signal.SIGCONT)
        kubectl("wait", f"node/{NODE_NAME}", "--for=condition=Ready", "--timeout=15m")


def test_jobs_on_an_unreachable_node_wait_for_their_pods_and_continue_after_the_out_of_service_taint(
    namespace: Namespace, local: Cluster, kubelet: int
) -> None:
    """Kubernetes evicts the pod of one job soon, and reports that of the other as running for five minutes.

    The ranks of the other job have lost their network, too.
    """
    policy = {"backoffLimit": 0}
    jobs = {"lost": HASTY, "off": PATIENT}
    namespace.apply(
        *(
            namespace.job(name, RANK, worker={"replicas": 1, "template": template}, runPolicy=policy)
            for name, template in jobs.items()
        )
    )
    for name in jobs:
        namespace.wait_phase(name, "Running")
        wait_for("the rank", lambda name=name: namespace.processes(f"{name}-worker-0"))  # type: ignore[misc]
    set_link(namespace, local, "off-worker-0", "down")

    def wait_reported(name: str, words: str) -> None:
        namespace.wait(name, words, lambda _: words in namespace.condition(name, "Reconciling")["message"])

    with silent(kubelet, namespace.kubectl):
        errors = {name: namespace.wait(name, "an error", lambda status: status["errors"])["errors"] for name in jobs}
        for name, reason in (("lost", "Evicted"), ("off", "NodeLost")):
            (error,) = errors[name]
            assert (error["reason"], error["pod"], error["node"]) == (reason, f"{name}-worker-0", NODE_NAME)
        assert errors["lost"][0]["message"] == f"worker 0 was evicted from node {NODE_NAME}: DeletionByTaintManager"
        # On a busy node, the launcher can be overdue before it.
        wait_reported("lost", f"waiting for pod lost-worker-0 to terminate, which node {NODE_NAME} should have stopped")
        wait_reported("lost", "if that node does not respond, delete it or taint it node.kubernetes.io/out-of-service")
        wait_reported("off", "waiting for pod off-worker-0 to terminate")
        for name in jobs:
            status = namespace.status(name)
            assert (status["phase"], status["restarts"], status["preemptions"]) == ("Restarting", 0, 1)
        launcher = namespace.pods()["off-launcher"]["metadata"]
        assert launcher["labels"]["horovodjob.dev/attempt"] == "2"
        assert launcher["annotations"]["horovodjob.dev/hosts"] == ""
        namespace.kubectl("taint", "node", NODE_NAME, f"{OUT_OF_SERVICE}=nodeshutdown:NoSchedule")
        try:
            for name in jobs:
                wait_reported(name, "waiting for nodes: 0/")
        finally:
            namespace.kubectl("taint", "node", NODE_NAME, f"{OUT_OF_SERVICE}-")
    for name in jobs:
        status = namespace.wait_phase(name, "Succeeded")
        assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 1)
