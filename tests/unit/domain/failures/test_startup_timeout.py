"""Pods that their kubelet cannot start: after a time, the job gives its nodes back and tries again later."""

from datetime import timedelta

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.backoff import reschedule_at
from horovodjob_operator.domain.pods.observed import KubeletEventReason, KubeletWarning
from horovodjob_operator.domain.pods.pod import ContainerWaiting
from unit.domain.fake_cluster import NOON, FakeCluster, phase_of, running_cluster, training_job

WORKER = "cifar-worker-1"
MISSING = 'secret "x" not found'
CAUSES = {
    "CreateContainerConfigError": (Reason.INVALID_SPEC, MISSING),
    "CreateContainerError": (Reason.INVALID_SPEC, MISSING),
    "ImagePullBackOff": (Reason.IMAGE_PULL_FAILED, f"cannot get image trainer: {MISSING}"),
    "FailedMount": (Reason.STORAGE_UNAVAILABLE, f"cannot mount its volumes: {MISSING}"),
}


def block(cluster: FakeCluster, cause: str) -> None:
    """All pods have a node, and a worker cannot start."""
    cluster.reconcile()
    cluster.schedule_pods()
    if cause == "FailedMount":
        cluster.update_pod(WORKER, phase="Pending", address="")
        cluster.kubelet_warning = KubeletWarning(KubeletEventReason.MOUNT_FAILED, MISSING)
    else:
        waiting = ContainerWaiting("worker", cause, MISSING)
        cluster.update_pod(WORKER, phase="Pending", waiting=waiting, has_pending_container=True)
    cluster.reconcile()


@pytest.mark.parametrize("cause", CAUSES)
def test_a_job_with_a_pod_that_cannot_start_frees_its_nodes_and_runs_when_the_cause_is_removed(cause: str) -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 15}))
    block(cluster, cause)
    reason, text = CAUSES[cause]
    assert (phase_of(cluster), cluster.next_plan().requeue_at) == (Phase.STARTING, NOON + timedelta(seconds=15))
    ready, stalled = (cluster.condition(type_) for type_ in (ConditionType.READY, ConditionType.STALLED))
    assert (ready.reason, len(cluster.status.errors)) == (reason, 1)
    assert ready.message == f"pod {WORKER}{':' if reason is Reason.INVALID_SPEC else ''} {text}"
    assert stalled.status == ("False" if reason is Reason.IMAGE_PULL_FAILED else "True"), "a registry can recover"
    cluster.reconcile(after=14)
    assert not any(pod.is_terminating for pod in cluster.pods.values())
    cluster.reconcile(after=1)
    assert all(pod.is_terminating for pod in cluster.pods.values())
    at = reschedule_at(cluster.job, cluster.now)
    assert at is not None
    assert cluster.message == (
        f"pod {WORKER} could not start for scheduling.timeoutSeconds, 15 s: {text}; "
        f"all pods are deleted, and created again at {at:%H:%M:%SZ}"
    )
    error = cluster.status.errors[-1]
    assert (phase_of(cluster), error.reason, error.pod) == (Phase.QUEUED, Reason.SCHEDULING_TIMEOUT, WORKER)
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert (len(cluster.pods), cluster.next_plan().requeue_at) == (0, at)
    cluster.now, cluster.kubelet_warning = at, None
    cluster.start()
    assert (phase_of(cluster), cluster.status.attempt, cluster.status.restarts) == (Phase.RUNNING, 2, 0)
    assert cluster.condition(ConditionType.STALLED).status == "False"


def test_the_time_is_that_of_the_first_error_if_another_pod_cannot_start_later() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 15}))
    block(cluster, "CreateContainerConfigError")
    cluster.wait(10)
    other = ContainerWaiting("worker", "CreateContainerConfigError", "no")
    cluster.update_pod("cifar-worker-0", phase="Pending", waiting=other)
    cluster.reconcile()
    assert cluster.next_plan().requeue_at == NOON + timedelta(seconds=15)


@pytest.mark.parametrize(
    ("scheduling", "preparation", "text"),
    [
        (900, 0, "900 s, scheduling.timeoutSeconds: "),
        (900, 100, "1000 s, scheduling.timeoutSeconds and preparation.timeoutSeconds: "),
        (15, 0, "600 s, the shortest limit of a start: "),
        (15, 100, "700 s, the shortest limit of a start and preparation.timeoutSeconds: "),
    ],
)
def test_a_start_without_an_error_has_the_limit_of_scheduling_and_preparation(
    scheduling: int, preparation: int, text: str
) -> None:
    policy = {"command": "true", "timeoutSeconds": preparation} if preparation else None
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": scheduling}, preparation=policy))
    limit = int(text.split(" ", 1)[0])
    cluster.reconcile()
    cluster.schedule_pods()
    cluster.update_pod(WORKER, phase="Pending", address="", has_pending_container=True)
    cluster.update_pod("cifar-worker-0", is_ready=True)
    cluster.reconcile()
    assert cluster.next_plan().requeue_at == NOON + timedelta(seconds=limit)
    cluster.reconcile(after=limit - 1)
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.STARTING, 1)
    cluster.reconcile(after=1)
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.QUEUED, 2)
    assert f"the ranks did not start for {text}" in cluster.status.errors[-1].message
    assert cluster.status.restarts == cluster.status.preemptions == 0
    assert all(pod.is_terminating for pod in cluster.pods.values())


def test_the_ranks_of_a_restarted_attempt_have_the_whole_limit_although_its_workers_remain() -> None:
    cluster = running_cluster(scheduling={"timeoutSeconds": 600})
    cluster.wait(10_000)
    cluster.end_container("cifar-launcher", 1)
    cluster.reconcile()
    cluster.reconcile(after=10)
    cluster.remove_terminating_pods()
    cluster.reconcile(after=10)
    cluster.schedule_pods()
    cluster.reconcile(after=599)
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.STARTING, 2)
    cluster.reconcile(after=1)
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.QUEUED, 3)


def test_a_container_that_cannot_start_while_mpirun_runs_has_no_consequence(running: FakeCluster) -> None:
    running.update_pod(WORKER, waiting=ContainerWaiting("proxy", "CreateContainerConfigError", MISSING))
    for _ in range(3):
        running.reconcile()
        running.wait(1000)
    assert (phase_of(running), running.status.attempt, running.status.errors) == (Phase.RUNNING, 1, ())


def test_a_pod_that_terminates_is_not_reported_as_one_that_cannot_start() -> None:
    cluster = FakeCluster(training_job())
    block(cluster, "ImagePullBackOff")
    cluster.update_pod(WORKER, is_terminating=True, deletion_timestamp=cluster.now)
    cluster.reconcile(after=10)
    assert cluster.message.startswith(f"waiting for pod {WORKER} to terminate, which node node1 should have")
