"""The pods of a job that ends: those with logs of failed workers stay."""

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.plan import MAX_KEPT_WORKERS
from unit.domain.fake_cluster import FakeCluster, new_cluster, phase_of, running_cluster

LAUNCHER, WORKERS = "cifar-launcher", ["cifar-worker-0", "cifar-worker-1", "cifar-worker-2"]


def running_job(policy: str, replicas: int = 3) -> FakeCluster:
    run_policy = {"cleanPodPolicy": policy, "backoffLimit": 0}
    return running_cluster(worker={"replicas": replicas, "gpus": 0}, runPolicy=run_policy)


def pods_left(cluster: FakeCluster) -> set[str]:
    cluster.reconcile()
    cluster.remove_terminating_pods()
    return set(cluster.pods)


def test_a_failed_worker_keeps_its_pod_and_log_when_the_others_are_deleted() -> None:
    cluster = running_job("Running")
    cluster.end_container("cifar-worker-1", 1)
    plan = cluster.next_plan()
    assert (plan.delete_workers, plan.keep_workers, plan.delete_pods) == (True, (1,), frozenset()), "one request"
    assert pods_left(cluster) == {LAUNCHER, "cifar-worker-1"}
    assert cluster.pods[LAUNCHER].is_stopping
    assert not cluster.next_plan().delete_workers
    assert (phase_of(cluster), cluster.status.replica_statuses.worker.failed) == (Phase.FAILED, 1)


def test_at_most_a_hundred_workers_are_kept() -> None:
    cluster = running_job("Running", replicas=MAX_KEPT_WORKERS + 20)
    for index in range(1, MAX_KEPT_WORKERS + 20):
        cluster.end_container(f"cifar-worker-{index}", 1)
    assert cluster.next_plan().keep_workers == tuple(range(1, MAX_KEPT_WORKERS + 1))


@pytest.mark.parametrize("policy", ["Running", "All"])
def test_a_terminated_job_deletes_the_workers_that_run(policy: str) -> None:
    cluster = running_job(policy)
    cluster.edit_run_policy(terminate=True)
    assert pods_left(cluster) == {LAUNCHER}
    cluster.end_container(LAUNCHER, 143)
    assert pods_left(cluster) == ({LAUNCHER} if policy == "Running" else set())


def terminate(cluster: FakeCluster) -> None:
    cluster.edit_run_policy(terminate=True)


def exceed_the_deadline(cluster: FakeCluster) -> None:
    cluster.edit_run_policy(active_deadline_seconds=1)
    cluster.wait(2)


@pytest.mark.parametrize("end", [terminate, exceed_the_deadline])
def test_with_the_policy_none_a_terminated_job_stops_its_pods_and_keeps_them(end: object) -> None:
    cluster = running_job("None")
    assert callable(end)
    end(cluster)
    assert pods_left(cluster) == {LAUNCHER, *WORKERS}
    assert all(pod.is_stopping for pod in cluster.pods.values())
    assert phase_of(cluster) is Phase.TERMINATING
    for name in cluster.pods:
        cluster.update_pod(name, phase="Failed", reason="DeadlineExceeded")
    assert pods_left(cluster) == {LAUNCHER, *WORKERS}
    failed = cluster.condition(ConditionType.FAILED)
    assert (phase_of(cluster), failed.reason in (Reason.TERMINATED, Reason.DEADLINE_EXCEEDED)) == (Phase.FAILED, True)


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_a_terminated_job_deletes_the_pods_that_have_no_node(policy: str) -> None:
    cluster = new_cluster(runPolicy={"cleanPodPolicy": policy})
    cluster.edit_run_policy(terminate=True)
    assert pods_left(cluster) == set()
    cluster.reconcile()
    assert phase_of(cluster) is Phase.FAILED


def test_with_the_policy_none_a_failed_job_leaves_the_workers_and_deletes_the_pods_without_a_node() -> None:
    cluster = running_job("None")
    cluster.end_container("cifar-worker-1", 1)
    cluster.update_pod("cifar-worker-2", node="", phase="Pending")
    assert pods_left(cluster) == {LAUNCHER, *WORKERS[:2]}
    stopped = {name for name, pod in cluster.pods.items() if pod.is_stopping}
    assert (phase_of(cluster), stopped) == (Phase.FAILED, {LAUNCHER})
    assert cluster.status.replica_statuses.worker.active == 1
