"""Workers without a started container, and workers that the launcher can no longer reach."""

import json

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from unit.domain.fake_cluster import FakeCluster, new_cluster, running_cluster
from unit.domain.lifecycle.test_main_container import pod


@pytest.mark.parametrize("sidecar", ["waiting", "running"])
def test_a_worker_is_no_host_while_init_containers_run_or_its_image_is_pulled(sidecar: str) -> None:
    def container_pending(state: str) -> bool:
        return pod(Role.WORKER, {"state": {state: {}}}, {"state": {sidecar: {}}}, phase="Pending").has_pending_container

    cluster = new_cluster()
    cluster.schedule_pods()
    cluster.update_pod("cifar-worker-1", has_pending_container=container_pending("waiting"))
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts == ""
    cluster.update_pod("cifar-worker-1", has_pending_container=container_pending("running"))
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts.count("slots=1") == 2


def fail(cluster: FakeCluster, *unreachable: str, **report: str) -> None:
    """The launcher fails and reports workers that it cannot reach."""
    report |= {"unreachable": " ".join(cluster.pods[name].address for name in unreachable)} if unreachable else {}
    cluster.end_container("cifar-launcher", 1, "Error", json.dumps(report) if report else "")


def deleted(cluster: FakeCluster) -> set[str]:
    return {name for name, pod in cluster.pods.items() if pod.is_terminating}


def test_a_worker_that_the_launcher_cannot_reach_counts_as_a_disruption_and_is_replaced() -> None:
    cluster = running_cluster(runPolicy={"backoffLimit": 0})
    fail(cluster, "cifar-worker-1")
    cluster.reconcile(after=9)
    assert cluster.status.phase is Phase.RUNNING, "the kubelet may be about to report why"
    cluster.reconcile(after=1)
    assert (cluster.status.phase, cluster.status.restarts, cluster.status.preemptions) == (Phase.RESTARTING, 0, 1)
    (error,) = cluster.status.errors
    message = f"the launcher cannot reach worker 1 at {cluster.pods['cifar-worker-1'].address} on node node1"
    assert (error.reason, error.pod, error.node, error.message) == (
        Reason.NODE_LOST,
        "cifar-worker-1",
        "node1",
        message,
    )
    assert deleted(cluster) == {"cifar-launcher", "cifar-worker-1"}
    kept = cluster.pods["cifar-worker-0"].uid
    del cluster.pods["cifar-launcher"]
    cluster.reconcile(after=60)
    assert (cluster.pods["cifar-launcher"].attempt, cluster.pods["cifar-launcher"].hosts) == (2, "")
    cluster.remove_terminating_pods()
    cluster.start()
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.preemptions) == (Phase.RUNNING, 2, 1)
    assert cluster.pods["cifar-worker-0"].uid == kept


@pytest.mark.parametrize("die_after", range(5))
def test_all_unreachable_workers_are_deleted_by_an_operator_that_dies_at_any_write(die_after: int) -> None:
    cluster = running_cluster()
    fail(cluster, "cifar-worker-0", "cifar-worker-1")
    cluster.reconcile(after=10, die_after=die_after)
    for name in deleted(cluster) - {"cifar-worker-0", "cifar-worker-1"}:
        del cluster.pods[name]
    cluster.reconcile()
    assert deleted(cluster) >= {"cifar-worker-0", "cifar-worker-1"}
    assert (cluster.status.attempt, cluster.status.preemptions) == (2, 1)


def test_an_unreachable_worker_fails_the_job_if_the_policy_is_fail() -> None:
    cluster = running_cluster(runPolicy={"onWorkerLoss": "Fail"})
    fail(cluster, "cifar-worker-1")
    cluster.reconcile(after=10)
    failed = cluster.condition(ConditionType.FAILED)
    assert (cluster.status.phase, failed.reason) == (Phase.FAILED, Reason.NODE_LOST)


def test_a_worker_that_ended_by_itself_is_no_disruption() -> None:
    cluster = running_cluster()
    fail(cluster, "cifar-worker-1")
    cluster.wait(9)
    cluster.end_container("cifar-worker-1", 137, "OOMKilled")
    cluster.reconcile()
    assert (cluster.status.errors[-1].reason, cluster.status.restarts) == (Reason.WORKER_OUT_OF_MEMORY, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ('{"unreachable": "10.9.9.9"}', "mpirun ended with exit code 1"),
        *((w, w) for w in ('{"unreachable": 5}', "[1]")),
    ],
)
def test_a_launcher_that_names_no_worker_of_the_job_has_failed(words: str, message: str) -> None:
    cluster = running_cluster()
    cluster.end_container("cifar-launcher", 1, "Error", words)
    cluster.reconcile(after=11)
    error = cluster.status.errors[-1]
    assert (error.reason, error.message, cluster.status.restarts) == (Reason.RANK_FAILED, message, 1)
    assert deleted(cluster) == {"cifar-launcher"}


@pytest.mark.parametrize(("not_ready", "reason", "restarts"), [(True, "NodeLost", 0), (False, "SshUnavailable", 1)])
def test_a_worker_without_ssh_is_a_disruption_if_its_node_does_not_report(
    not_ready: bool, reason: str, restarts: int
) -> None:
    cluster = running_cluster()
    cluster.update_pod("cifar-worker-1", has_unready_node=not_ready)
    fail(cluster, reason="SshUnavailable", message="worker 10.0.0.2 did not answer")
    cluster.reconcile(after=3)
    assert (cluster.status.errors[-1].reason, cluster.status.restarts) == (reason, restarts)
    assert ("cifar-worker-1" in deleted(cluster)) == not_ready


def test_the_address_of_a_worker_whose_node_does_not_report_is_not_published() -> None:
    cluster = new_cluster()
    cluster.schedule_pods()
    cluster.update_pod("cifar-worker-1", has_unready_node=True)
    cluster.reconcile()
    assert cluster.message == "waiting for node node1 of pod cifar-worker-1, which does not report to Kubernetes"
    assert cluster.pods["cifar-launcher"].hosts == ""
    cluster.update_pod("cifar-worker-1", has_unready_node=False)
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts.count("slots=1") == 2


def test_ranks_of_an_elastic_job_continue_while_a_node_does_not_report() -> None:
    cluster = running_cluster(elastic={"minReplicas": 1, "maxReplicas": 3})
    cluster.update_pod("cifar-worker-1", has_unready_node=True, is_ready=False)
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts.count("slots=1") == 2


@pytest.mark.parametrize(
    ("ready", "containers_ready", "not_ready"),
    [
        ({"status": "False"}, "True", True),
        ({"status": "True"}, "True", False),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, "True", False),
        ({"status": "False", "reason": "ContainersNotReady"}, "False", False),
    ],
    ids=["node controller", "ready", "readiness gate", "container"],
)
def test_the_node_controller_makes_a_pod_unready_without_a_reason(
    ready: dict[str, str], containers_ready: str, not_ready: bool
) -> None:
    conditions = [{"type": "Ready", **ready}, {"type": "ContainersReady", "status": containers_ready}]
    assert pod(Role.WORKER, {}, conditions=conditions).has_unready_node is not_ready
