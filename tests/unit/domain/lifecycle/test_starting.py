"""Pods without a node, and pods that do not start: scheduling, images and mounts."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.backoff import reschedule_at
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pods.observed import Refusal
from horovodjob_operator.domain.pods.pod import ContainerWaiting
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import FakeCluster, new_cluster, phase_of, training_job


def schedule_two_of_three(cluster: FakeCluster) -> None:
    cluster.reconcile()
    cluster.schedule_pods(at_most=2)
    cluster.reconcile()


def test_pods_that_are_not_all_scheduled_are_deleted_and_created_again_later() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    schedule_two_of_three(cluster)
    cluster.reconcile(after=59)
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.QUEUED, 1)
    cluster.reconcile(after=1)
    assert all(pod.is_terminating for pod in cluster.pods.values())
    ready = cluster.condition(ConditionType.READY)
    assert ready.reason == Reason.SCHEDULING_TIMEOUT
    assert ready.message.startswith(
        "2 of 3 pods had a node after scheduling.timeoutSeconds, 60 s; all pods are deleted"
    )
    assert (phase_of(cluster), cluster.status.restarts, cluster.status.preemptions) == (Phase.QUEUED, 0, 0)
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert not cluster.pods
    cluster.wait(16)
    cluster.start()
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.RUNNING, 2)


def test_the_delay_of_rescheduled_pods_increases_and_differs_between_jobs() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    delays = []
    for _ in range(4):
        schedule_two_of_three(cluster)
        cluster.reconcile(after=60)
        cluster.remove_terminating_pods()
        until = reschedule_at(cluster.job, cluster.now)
        assert until is not None
        delays.append((until - cluster.now).total_seconds())
        cluster.now = until
    assert [5 * 2**n <= delay <= 15 * 2**n for n, delay in enumerate(delays)] == [True] * 4
    other = cluster.job.model_copy(update={"metadata": cluster.job.metadata.model_copy(update={"uid": "other"})})
    assert reschedule_at(other, cluster.now) != reschedule_at(cluster.job, cluster.now)


def test_running_time_does_not_count_for_the_scheduling_timeout() -> None:
    cluster = new_cluster(scheduling={"timeoutSeconds": 60})
    cluster.schedule_pods()
    cluster.update_pod("cifar-worker-1", address="")
    cluster.reconcile()
    cluster.wait(100)
    del cluster.pods["cifar-worker-1"]
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.QUEUED, 1)
    cluster.reconcile(after=59)
    assert cluster.status.attempt == 1
    cluster.reconcile(after=1)
    assert cluster.status.attempt == 2


def test_an_image_that_runs_as_root_is_reported_with_the_field_that_helps() -> None:
    cluster = new_cluster()
    message = "container has runAsNonRoot and image will run as root"
    cluster.update_pod(
        "cifar-worker-0", node="n", waiting=ContainerWaiting("worker", "CreateContainerConfigError", message)
    )
    cluster.reconcile()
    stalled = cluster.condition(ConditionType.STALLED)
    assert stalled.status == "True"
    assert "spec.podSecurity" in stalled.message


def test_a_refused_job_has_no_pods_and_is_tried_again_with_dry_run_requests() -> None:
    cluster = new_cluster(launcher={"asWorker": True}, worker={"replicas": 3, "gpus": 0})
    retry_at = cluster.now + timedelta(seconds=5)
    observed = replace(cluster.observed, refusal=Refusal(Reason.INVALID_SPEC, "no such field", retry_at))
    outcome = next_status(JobContext(cluster.job, observed, cluster.now))[1]
    first, second = (plan_for(JobContext(cluster.job, observed, now), outcome) for now in (cluster.now, retry_at))
    assert (first.delete_all_pods, first.creates_pods, first.requeue_at) == (True, False, retry_at)
    assert (second.dry_run, second.create_launcher, second.create_workers) == (True, True, (1,))


def test_a_creation_that_failed_is_tried_again_at_its_time_while_the_pods_that_exist_are_kept() -> None:
    cluster = new_cluster()
    del cluster.pods["cifar-worker-1"]
    retry_at = cluster.now + timedelta(seconds=5)
    cluster.refusal = Refusal(Reason.CREATION_FAILED, "no answer", retry_at, keeps_pods=True)
    early = cluster.next_plan()
    assert (early.creates_pods, early.requeue_at) == (False, retry_at)
    cluster.now = retry_at
    later = cluster.next_plan()
    assert (later.delete_all_pods, later.create_workers, later.dry_run) == (False, (1,), False)


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        ({"worker": {"resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}}, {"cpu": "1", "memory": "1024Mi"}),
        ({"worker": {"resources": {"limits": {"memory": "8Gi"}}}}, {"memory": "1024Mi"}),
        ({"worker": {}}, None),
        (
            {"worker": {"resources": {"limits": {"cpu": "4"}}}, "launcher": {"resources": {"requests": {"cpu": "1"}}}},
            None,
        ),
    ],
)
def test_a_launcher_without_resources_has_limits_of_what_the_workers_have_limits_of(
    spec: dict[str, Any], limits: dict[str, str] | None
) -> None:
    """A quota of limits refuses a pod without them."""
    container = launcher_pod(training_job(**spec), 1, "", "")["spec"]["containers"][0]
    assert container["resources"].get("limits") == limits
