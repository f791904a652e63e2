"""The pods of a job that ends: those with logs of failed workers stay."""

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.plan import MAX_KEPT_WORKERS, Plan, plan_for
from horovodjob_operator.domain.pods.pod_facts import owned_pod
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import FakeCluster, phase_of, training_job

LAUNCHER, WORKERS = "cifar-launcher", ["cifar-worker-0", "cifar-worker-1", "cifar-worker-2"]


def running_job(policy: str, replicas: int = 3) -> FakeCluster:
    run_policy = {"cleanPodPolicy": policy, "backoffLimit": 0}
    cluster = FakeCluster(training_job(worker={"replicas": replicas, "gpus": 0}, runPolicy=run_policy))
    cluster.start()
    return cluster


def next_plan(cluster: FakeCluster) -> Plan:
    """The plan after the status is written."""
    while (status := next_status(cluster.context)[0]) != cluster.status:
        cluster.job = cluster.job.model_copy(update={"status": status})
    return plan_for(cluster.context, next_status(cluster.context)[1])


def pods_left(cluster: FakeCluster) -> set[str]:
    cluster.reconcile()
    cluster.remove_terminating_pods()
    return set(cluster.pods)


def test_a_failed_worker_keeps_its_pod_and_log_when_the_others_are_deleted() -> None:
    cluster = running_job("Running")
    cluster.end_container("cifar-worker-1", 1)
    plan = next_plan(cluster)
    assert (plan.delete_workers, plan.keep_workers, plan.delete_pods) == (True, (1,), frozenset()), "one request"
    assert pods_left(cluster) == {LAUNCHER, "cifar-worker-1"}
    assert cluster.pods[LAUNCHER].is_stopping
    assert not next_plan(cluster).delete_workers
    assert (phase_of(cluster), cluster.status.replica_statuses.worker.failed) == (Phase.FAILED, 1)


def test_at_most_a_hundred_workers_are_kept() -> None:
    cluster = running_job("Running", replicas=MAX_KEPT_WORKERS + 20)
    for index in range(1, MAX_KEPT_WORKERS + 20):
        cluster.end_container(f"cifar-worker-{index}", 1)
    assert next_plan(cluster).keep_workers == tuple(range(1, MAX_KEPT_WORKERS + 1))


def test_a_worker_has_ended_when_its_container_has() -> None:
    labels = {"horovodjob.dev/job": "cifar", "horovodjob.dev/role": "worker"}
    labels |= {"horovodjob.dev/replica-index": "1", "horovodjob.dev/attempt": "1"}
    ended = {"name": "worker", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    status = {"phase": "Running", "containerStatuses": [ended, {"name": "proxy", "state": {"running": {}}}]}
    seen = owned_pod(
        {"metadata": {"name": "cifar-worker-1", "namespace": "team", "uid": "u", "labels": labels}, "status": status}
    )
    assert seen is not None
    cluster = running_job("Running")
    facts = seen.pod
    cluster.update_pod(
        facts.name, phase=facts.phase, termination=facts.termination, has_running_sidecars=facts.has_running_sidecars
    )
    assert pods_left(cluster) == {LAUNCHER, facts.name}
    assert cluster.pods[facts.name].is_stopping, "its sidecars do not keep the node"


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
    cluster = FakeCluster(training_job(runPolicy={"cleanPodPolicy": policy}))
    cluster.reconcile()
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
