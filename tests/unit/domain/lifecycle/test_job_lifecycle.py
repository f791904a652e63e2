"""The lifecycle of a job: phases, hosts, clean-up and events."""

import pytest

from horovodjob.api.constants import ConditionType, Phase
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.status import Urgency, status_with_error, urgency
from unit.domain.fake_cluster import NOON, FakeCluster, new_cluster, phase_of, running_cluster, training_job


def test_a_successful_job_has_four_phases_and_its_last_status_stays(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    assert running.phases == [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED]
    assert running.status.exit_code == 0
    final = running.status
    running.pods.clear()
    running.reconcile(after=9999)
    assert running.status == final


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_launcher_that_hosts_ranks_is_replica_0(replicas: int) -> None:
    worker = {"replicas": replicas, "gpus": 0, "slots": 3}
    cluster = new_cluster(worker=worker, launcher={"asWorker": True})
    workers = [f"cifar-worker-{index}" for index in range(1, replicas)]
    assert set(cluster.pods) == {"cifar-launcher", *workers}
    cluster.update_pod("cifar-launcher", node="n", address="10.0.0.9")
    for name in workers:
        assert cluster.pods["cifar-launcher"].hosts == ""
        cluster.update_pod(name, node="n", address=f"10.0.0.{name[-1]}", is_ready=True)
        cluster.reconcile()
    addresses = ["10.0.0.9", *(f"10.0.0.{index}" for index in range(1, replicas))]
    hosts = "".join(f"{address} slots=3\n" for address in addresses)
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts == hosts, "in the order of their ranks"
    cluster.update_pod("cifar-launcher", is_ready=True)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.replicas) == (Phase.RUNNING, replicas)
    assert cluster.status.workers_ready == f"{replicas}/{replicas}"


@pytest.mark.parametrize(("policy", "left"), [("Running", 1), ("All", 0), ("None", 3)])
def test_clean_pod_policy_selects_the_pods_to_delete(policy: str, left: int) -> None:
    cluster = running_cluster(runPolicy={"cleanPodPolicy": policy})
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    assert len(cluster.pods) == left


def test_the_observed_generation_of_a_finished_job_follows_its_spec(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    final = running.status
    running.edit_run_policy(ttl_seconds_after_finished=3600)
    running.reconcile()
    assert running.status.observed_generation == final.observed_generation + 1 == running.job.metadata.generation
    assert running.status.model_copy(update={"observed_generation": final.observed_generation}) == final


def test_an_error_before_the_status_of_a_new_spec_is_no_answer_to_that_spec(running: FakeCluster) -> None:
    running.edit_run_policy(backoff_limit=1)
    ready = status_with_error(running.status, "500", NOON).condition(ConditionType.READY)
    assert ready
    assert (ready.status, ready.observed_generation) == ("True", running.job.metadata.generation - 1)


def test_changes_of_counts_alone_are_not_significant() -> None:
    cluster = new_cluster()
    cluster.schedule_pods()
    cluster.reconcile()
    before = cluster.status
    cluster.update_pod("cifar-worker-0", is_ready=True)
    cluster.reconcile()
    assert cluster.status.workers_ready == "1/2"
    assert urgency(before, cluster.status) is Urgency.COUNTS


def test_each_transition_has_its_event_once(running: FakeCluster) -> None:
    at_once = events_between(running.job, training_job().status, running.status)
    assert [event.reason for event in at_once] == ["Started"], "none about pods that it has already"
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    reasons = [
        event.reason
        for old, new in zip([training_job().status, *running.statuses], running.statuses, strict=False)
        for event in events_between(running.job, old, new)
    ]
    assert reasons == ["Created", "Admitted", "Started", "Succeeded"]
