"""The operator deletes pods itself: their ends have no consequences, wherever it is killed meanwhile."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from horovodjob.api.constants import Phase, Reason, Role
from horovodjob_operator.domain import names
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.pods.observed import Refusal
from horovodjob_operator.domain.pods.pod import Pod
from unit.domain.fake_cluster import FakeCluster, new_cluster, phase_of, running_cluster, training_job

UNFORGIVING: dict[str, Any] = {"runPolicy": {"onWorkerLoss": "Fail", "backoffLimit": 0}}


def refused_job(created: int, **spec: Any) -> FakeCluster:
    """A job that has some of its pods when the API server refuses the next one."""
    cluster = new_cluster(**(UNFORGIVING | spec))
    cluster.pods = dict(sorted(cluster.pods.items())[:created])
    cluster.schedule_pods()
    cluster.refusal = Refusal(Reason.WAITING_FOR_NODES, "exceeded quota", cluster.now + timedelta(seconds=5))
    return cluster


def end_terminating_pods(cluster: FakeCluster) -> None:
    """The containers of deleted pods end with the signal, before the pods are gone."""
    for pod in list(cluster.pods.values()):
        if pod.is_terminating and pod.is_active:
            cluster.end_container(pod.name, 143)


def assert_no_consequences(cluster: FakeCluster) -> None:
    assert phase_of(cluster) is Phase.QUEUED
    assert (cluster.status.errors, cluster.status.restarts, cluster.status.preemptions) == ((), 0, 0)


@pytest.mark.parametrize("die_after", [None, *range(5)])
@pytest.mark.parametrize("created", [1, 2])
def test_the_pods_of_a_refused_attempt_are_no_evidence(created: int, die_after: int | None) -> None:
    cluster = refused_job(created)
    cluster.reconcile(die_after=die_after)
    if die_after is not None:
        cluster.refusal = None  # A new process does not know it.
    end_terminating_pods(cluster)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert_no_consequences(cluster)


def test_an_attempt_is_refused_once_and_posts_no_event_of_another_kind() -> None:
    cluster = refused_job(2)
    before = len(cluster.statuses)
    cluster.reconcile()
    assert cluster.status.attempt == 2
    end_terminating_pods(cluster)
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert cluster.status.attempt == 2
    changes = zip(cluster.statuses[before - 1 :], cluster.statuses[before:], strict=False)
    assert [event for old, new in changes for event in events_between(cluster.job, old, new)] == []


def test_a_worker_that_fails_by_itself_before_the_refusal_is_evidence() -> None:
    cluster = refused_job(2, runPolicy={"backoffLimit": 0})
    cluster.end_container("cifar-worker-0", 1)
    cluster.reconcile()
    assert phase_of(cluster) is Phase.FAILED


def test_a_job_that_is_suspended_again_before_its_resumption_is_written_has_no_lost_workers() -> None:
    cluster = FakeCluster(training_job(**UNFORGIVING))
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()
    suspended = cluster.status
    cluster.edit_run_policy(suspend=False)
    cluster.reconcile()
    cluster.schedule_pods()
    cluster.job = cluster.job.model_copy(update={"status": suspended})  # It was held back.
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()
    end_terminating_pods(cluster)
    cluster.edit_run_policy(suspend=False)
    cluster.reconcile()
    assert_no_consequences(cluster)


@pytest.mark.parametrize("changed", ["spec_hash", "secret_names"])
@pytest.mark.parametrize("die_after", [None, 0, 1, 2])
def test_pods_that_another_release_of_the_operator_created_are_no_evidence(changed: str, die_after: int | None) -> None:
    cluster = new_cluster(**UNFORGIVING)
    del cluster.pods["cifar-launcher"]
    cluster.schedule_pods()
    other = {"spec_hash": "other", "secret_names": ("other",)}[changed]
    for name in list(cluster.pods):
        cluster.update_pod(name, **{changed: other})
    cluster.reconcile(die_after=die_after)
    end_terminating_pods(cluster)
    cluster.reconcile()
    assert_no_consequences(cluster)


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_worker_of_an_elastic_job_that_was_scaled_down_is_not_lost_when_it_is_scaled_up_again(is_ended: bool) -> None:
    cluster = running_cluster(elastic={"minReplicas": 1, "maxReplicas": 4})
    cluster.scale(1)
    cluster.reconcile()
    assert cluster.pods["cifar-worker-1"].is_terminating
    cluster.scale(2)
    cluster.reconcile()
    if is_ended:
        end_terminating_pods(cluster)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.errors, cluster.status.preemptions) == (Phase.RUNNING, (), 0)


def test_the_workers_of_an_attempt_that_has_ended_are_no_evidence_when_their_launcher_is_gone() -> None:
    cluster = refused_job(3)
    cluster.reconcile()
    worker = Pod("cifar-worker-0", "w", Role.WORKER, 0, attempt=1, is_terminating=True, owner_uid="x")
    cluster.pods = {worker.name: replace(worker, phase="Failed")}
    cluster.refusal = None
    cluster.reconcile()
    assert names.launcher_name(cluster.job) in cluster.pods
    assert_no_consequences(cluster)
