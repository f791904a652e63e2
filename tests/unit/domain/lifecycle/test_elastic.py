"""Elastic jobs: statuses, hosts and pods when workers join, leave and are lost."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pods.observed import KubeletEventReason, KubeletWarning, Refusal
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import FakeCluster, running_cluster, training_job

LAUNCHER = "cifar-launcher"


def elastic_job(replicas: int = 2, least: int = 1, **spec: Any) -> FakeCluster:
    elastic = {"minReplicas": least, "maxReplicas": 4}
    return FakeCluster(training_job(worker={"replicas": replicas, "gpus": 0}, elastic=elastic, **spec))


def hosts(cluster: FakeCluster) -> list[str]:
    return [line.split()[0] for line in cluster.pods[LAUNCHER].hosts.splitlines()]


def addresses(cluster: FakeCluster, *indices: int) -> list[str]:
    return [cluster.pods[f"cifar-worker-{index}"].address for index in indices]


def workers(cluster: FakeCluster) -> set[str]:
    return set(cluster.pods) - {LAUNCHER}


@pytest.fixture
def running() -> FakeCluster:
    cluster = elastic_job()
    cluster.start()
    assert cluster.status.phase is Phase.RUNNING
    return cluster


def test_an_elastic_job_gets_more_workers_while_it_runs(running: FakeCluster) -> None:
    before = running.status
    running.scale(3)
    running.reconcile()
    assert hosts(running) == addresses(running, 0, 1), "not before it has an address"
    running.schedule_pods()
    running.reconcile()
    assert hosts(running) == addresses(running, 0, 1, 2)
    assert (running.status.phase, running.status.replicas, running.status.attempt) == (Phase.RUNNING, 3, 1)
    resized = [event.note for event in events_between(running.job, before, running.status)]
    assert resized == ["worker.replicas is 3, was 2"]


def test_scaling_down_publishes_the_hosts_before_it_deletes_the_last_workers(running: FakeCluster) -> None:
    running.scale(1)
    first = running.next_plan()
    assert (first.publish_hosts, first.delete_pods) == (True, frozenset())
    running.reconcile()
    assert hosts(running) == addresses(running, 0)
    assert running.pods["cifar-worker-1"].is_terminating
    running.remove_terminating_pods()
    running.reconcile()
    assert workers(running) == {"cifar-worker-0"}
    assert (running.status.replicas, running.status.preemptions, running.status.errors) == (1, 0, ())


@pytest.mark.parametrize("how", ["deleted", "gone", "evicted"])
def test_a_disrupted_worker_is_replaced_after_a_second_and_the_ranks_continue(running: FakeCluster, how: str) -> None:
    name, before = "cifar-worker-1", running.status
    if how == "evicted":
        running.update_pod(
            name, phase="Failed", disruption="TerminationByKubelet", message="the node was low on memory"
        )
    else:
        running.update_pod(name, is_terminating=True)
    if how == "gone":
        running.remove_terminating_pods()
    running.reconcile()
    assert hosts(running) == addresses(running, 0)
    running.remove_terminating_pods()
    running.reconcile(after=1)
    assert running.pods[name].node == "", "recreated"
    running.schedule_pods()
    running.reconcile()
    assert hosts(running) == addresses(running, 0, 1)
    status = running.status
    assert (status.phase, status.attempt, status.restarts) == (Phase.RUNNING, 1, 0)
    assert [error.pod for error in status.errors] == [name]
    assert status.errors[0].reason == (Reason.EVICTED if how == "evicted" else Reason.WORKER_LOST)
    assert status.preemptions == 1
    (event,) = events_between(running.job, before, status)
    assert (event.reason, event.is_warning) == (EventReason.PREEMPTED, True)


def test_a_worker_whose_eviction_and_absence_are_observed_together_is_reported_once(running: FakeCluster) -> None:
    pod = replace(running.pods.pop("cifar-worker-1"), disruption="EvictionByEvictionAPI", is_terminating=True)
    for _ in range(2):
        status, _ = next_status(JobContext(running.job, replace(running.observed, deleted_pods=(pod,)), running.now))
        running.job = running.job.model_copy(update={"status": status})
    running.reconcile()
    (error,) = running.status.errors
    assert (error.reason, error.pod, error.node) == (Reason.EVICTED, "cifar-worker-1", "node1")
    assert running.status.preemptions == 1


def test_a_worker_that_ends_by_itself_is_replaced_after_a_growing_delay(running: FakeCluster) -> None:
    for delay in (10, 20, 40):
        running.end_container("cifar-worker-1", 137, "OOMKilled")
        running.reconcile()
        running.remove_terminating_pods()
        running.reconcile(after=delay - 1)
        assert workers(running) == {"cifar-worker-0"}
        running.reconcile(after=1)
        running.schedule_pods()
        running.reconcile()
        assert hosts(running) == addresses(running, 0, 1)
    assert {error.reason for error in running.status.errors} == {Reason.WORKER_OUT_OF_MEMORY}
    assert (running.status.phase, running.status.preemptions, running.status.restarts) == (Phase.RUNNING, 0, 0)


def test_more_simultaneous_losses_than_a_status_contains_reach_a_stable_status() -> None:
    cluster = running_cluster(worker={"replicas": 14, "gpus": 0}, elastic={})
    for index in range(1, 14):
        cluster.update_pod(f"cifar-worker-{index}", is_terminating=True)
    cluster.reconcile()
    assert len(cluster.status.errors) == 10
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert len(workers(cluster)) == 1, "the status cannot contain which workers were lost before"
    cluster.reconcile(after=10)
    assert (cluster.status.phase, len(workers(cluster))) == (Phase.RUNNING, 14)


def test_an_elastic_job_starts_with_fewer_workers_when_nodes_are_missing() -> None:
    cluster = elastic_job(replicas=3, least=2)
    cluster.reconcile()
    for name in ("cifar-worker-0", "cifar-worker-1", LAUNCHER):
        cluster.update_pod(name, node="node1", address=f"10.1.0.{len(name)}", phase="Running")
    cluster.reconcile()
    assert (cluster.status.phase, hosts(cluster)) == (Phase.QUEUED, []), "the scheduler has not handled the third yet"
    cluster.update_pod("cifar-worker-2", unschedulable_message="0/1 nodes are available")
    cluster.reconcile()
    assert (cluster.status.phase, hosts(cluster)) == (Phase.STARTING, addresses(cluster, 0, 1))
    cluster.update_pod(LAUNCHER, is_ready=True)
    cluster.reconcile()
    assert cluster.status.phase is Phase.RUNNING
    cluster.update_pod("cifar-worker-2", unschedulable_message="", node="node2", address="10.1.0.9", phase="Running")
    cluster.reconcile()
    assert hosts(cluster) == addresses(cluster, 0, 1, 2)


def test_an_elastic_job_waits_for_nodes_below_its_minimum() -> None:
    cluster = elastic_job(replicas=3, least=2, scheduling={"timeoutSeconds": 60})
    cluster.reconcile()
    cluster.update_pod(LAUNCHER, node="node1", address="10.1.0.1")
    cluster.update_pod("cifar-worker-0", node="node1", address="10.1.0.2")
    for index in (1, 2):
        cluster.update_pod(f"cifar-worker-{index}", unschedulable_message="0/1 nodes are available")
    cluster.reconcile()
    assert (cluster.status.phase, hosts(cluster)) == (Phase.QUEUED, [])
    cluster.reconcile(after=61)
    assert cluster.status.errors[-1].reason == Reason.SCHEDULING_TIMEOUT


@pytest.mark.parametrize(("policy", "phase"), [("Restart", Phase.RESTARTING), ("Fail", Phase.FAILED)])
def test_an_elastic_job_below_its_minimum_fails_after_the_timeout(policy: str, phase: Phase) -> None:
    cluster = elastic_job(least=2, scheduling={"timeoutSeconds": 60}, runPolicy={"onWorkerLoss": policy})
    cluster.start()
    cluster.update_pod("cifar-worker-1", is_terminating=True)
    cluster.reconcile()
    assert cluster.condition(ConditionType.PREPARED).status == "False"
    assert (
        cluster.condition(ConditionType.READY).message
        == "1 worker of the 2 that elastic.minReplicas requires: ranks wait"
    )
    cluster.remove_terminating_pods()
    cluster.reconcile(after=59)
    assert cluster.status.phase is Phase.RUNNING
    cluster.reconcile(after=2)
    assert (cluster.status.phase, cluster.status.errors[-1].reason) == (phase, Reason.WORKER_LOST)
    assert "scheduling.timeoutSeconds" in cluster.status.errors[-1].message


def test_a_worker_in_time_ends_the_wait() -> None:
    cluster = elastic_job(least=2, scheduling={"timeoutSeconds": 60})
    cluster.start()
    cluster.update_pod("cifar-worker-1", is_terminating=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile(after=1)
    cluster.wait(50)
    cluster.schedule_pods()
    cluster.reconcile()
    cluster.reconcile(after=50)
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.condition(ConditionType.PREPARED).status == "True"


def test_a_refused_worker_does_not_affect_the_other_workers(running: FakeCluster) -> None:
    running.scale(3)
    retry_at = running.now.replace(second=30)
    refusal = Refusal(Reason.WAITING_FOR_NODES, "exceeded quota: pods=3", retry_at)
    observed = replace(running.observed, refusal=refusal)
    status, outcome = next_status(JobContext(running.job, observed, running.now))
    ready = status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.message == "up to 2 ranks run on 2 workers of 3; exceeded quota: pods=3"
    plan = plan_for(JobContext(running.job, observed, running.now), outcome)
    assert (plan.delete_all_pods, plan.creates_pods) == (False, False)
    assert plan.requeue_at == retry_at
    later = plan_for(JobContext(running.job, observed, retry_at), outcome)
    assert later.create_workers == (2,)


def test_a_refused_worker_does_not_delay_the_secret_that_the_other_workers_need(running: FakeCluster) -> None:
    running.scale(3)
    running.refusal = Refusal(Reason.WAITING_FOR_NODES, "exceeded quota: pods=3", running.now + timedelta(seconds=30))
    running.kubelet_warning = KubeletWarning(
        KubeletEventReason.MOUNT_FAILED, f'secret "{names.secret_names(running.job)[0]}" not found'
    )
    plan = running.next_plan()
    assert (plan.create_secrets, plan.creates_pods) == (True, False)


def test_a_lost_worker_is_reported_once_if_the_clock_of_the_api_server_is_ahead() -> None:
    cluster = running_cluster(elastic={"minReplicas": 1})
    created_at = cluster.now + timedelta(seconds=30)
    cluster.update_pod("cifar-worker-1", is_terminating=True, created_at=created_at)
    cluster.reconcile()
    (error,) = cluster.status.errors
    assert (error.time, cluster.status.preemptions) == (created_at, 1)
