"""Failed ranks, disruptions and restarts."""

from dataclasses import replace
from typing import Any

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.pod import ContainerTermination
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import NOON, FakeCluster, phase_of, running_cluster


def fail_once(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 3)
    cluster.reconcile(after=3)


def test_a_failed_rank_restarts_the_job_after_ten_seconds_with_its_healthy_workers(running: FakeCluster) -> None:
    workers = {name: pod.uid for name, pod in running.pods.items() if "worker" in name}
    fail_once(running)
    assert (running.status.phase, running.status.attempt, running.status.restarts) == (Phase.RESTARTING, 2, 1)
    running.remove_terminating_pods()
    running.reconcile(after=9)
    assert "cifar-launcher" not in running.pods
    running.reconcile(after=2)
    launcher = running.pods["cifar-launcher"]
    assert (launcher.attempt, launcher.hosts.count("slots=1")) == (2, 2)
    assert {name: pod.uid for name, pod in running.pods.items() if "worker" in name} == workers


def test_the_job_fails_at_its_backoff_limit() -> None:
    cluster = running_cluster(runPolicy={"backoffLimit": 1})
    fail_once(cluster)
    cluster.remove_terminating_pods()
    cluster.wait(30)
    cluster.start()
    fail_once(cluster)
    assert phase_of(cluster) is Phase.FAILED
    assert cluster.status.exit_code == 3
    assert [error.attempt for error in cluster.status.errors] == [1, 2]
    failed = cluster.condition(ConditionType.FAILED)
    assert failed.reason == Reason.BACKOFF_LIMIT_EXCEEDED


def test_a_worker_out_of_memory_is_the_reason_even_if_the_launcher_fails_first(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 137)
    running.reconcile()
    running.reconcile(after=9)
    assert phase_of(running) is Phase.RUNNING
    running.end_container("cifar-worker-1", 137, "OOMKilled")
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, error.pod, error.exit_code) == (Reason.WORKER_OUT_OF_MEMORY, "cifar-worker-1", 137)
    assert running.status.restarts == 1


@pytest.mark.parametrize(
    ("pod", "reason", "log", "cause"),
    [
        ("cifar-worker-1", "OOMKilled", "step 7", "worker 1 was killed: its memory limit is reached"),
        (
            "cifar-worker-1",
            "Error",
            "step 7",
            "worker 1 was lost: its container ended with exit code 137, killed by signal 9",
        ),
        ("cifar-launcher", "OOMKilled", "step 7", "the launcher was killed: its memory limit is reached"),
        ("cifar-launcher", "Error", '{"loss": 1}', ""),
        ("cifar-launcher", "Error", '{"reason": "Evicted", "message": "not by this one"}', ""),
        ("cifar-launcher", "Error", "", "mpirun ended with exit code 137, killed by signal 9"),
        ("cifar-worker-1", "OOMKilled", "x" * 3000, "worker 1 was killed: its memory limit is reached"),
    ],
    ids=["memory", "killed", "launcher", "logs in JSON", "forged", "silent", "long"],
)
def test_an_error_contains_its_cause_and_the_last_lines_of_the_log(
    running: FakeCluster, pod: str, reason: str, log: str, cause: str
) -> None:
    running.end_container(pod, 137, reason, log)
    running.reconcile(after=11)
    error = running.status.errors[-1]
    message = f"{cause}; its last lines: {log}" if cause and log else cause or log
    assert (error.pod, error.exit_code, error.message) == (pod, 137, message[:2048])


LOW = "The node was low on resource: memory."
FULL = 'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi".'
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
REJECTED = "Pod was rejected: no room"


@pytest.mark.parametrize(
    ("role", "facts", "reason", "message", "restarts"),
    [
        ("worker-1", {"is_terminating": True}, "WorkerLost", "worker 1 was deleted", 0),
        (
            "worker-1",
            {"phase": "Failed", "reason": "Evicted", "disruption": "TerminationByKubelet", "message": LOW},
            "Evicted",
            f"worker 1 was evicted from node node1: {LOW}",
            0,
        ),
        (
            "worker-1",
            {"phase": "Failed", "reason": "Evicted", "message": FULL},
            "WorkerLost",
            f"worker 1 was evicted: {FULL}",
            1,
        ),
        (
            "launcher",
            {"phase": "Failed", "reason": "Evicted", "message": FULL},
            "LauncherFailed",
            f"the launcher was evicted: {FULL}",
            1,
        ),
        *(
            (
                role,
                {"phase": "Failed", "reason": reason, "message": REJECTED},
                "Evicted",
                f"{who} was rejected by node node1: {REJECTED}",
                0,
            )
            for role, reason, who in (
                ("worker-1", "UnexpectedAdmissionError", "worker 1"),
                ("worker-1", "OutOfnvidia.com/gpu", "worker 1"),
                ("worker-1", "NodeAffinity", "worker 1"),
                ("launcher", "NodeShutdown", "the launcher"),
            )
        ),
        ("worker-1", {"phase": "Failed", "reason": "AppArmor"}, "WorkerLost", "worker 1 failed: AppArmor", 1),
        (
            "worker-1",
            {"phase": "Failed", "disruption": "DeletionByPodGC", "is_terminating": True},
            "NodeLost",
            "worker 1 was lost with its node node1, which no longer exists",
            0,
        ),
    ],
)
def test_the_end_of_a_pod_is_a_disruption_or_a_failure_and_says_why(
    running: FakeCluster, role: str, facts: dict[str, Any], reason: str, message: str, restarts: int
) -> None:
    running.update_pod(f"cifar-{role}", **facts)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, error.pod, error.node) == (reason, f"cifar-{role}", "node1")
    assert error.message.startswith(message)
    assert (running.status.restarts, running.status.preemptions) == (restarts, 1 - restarts)


@pytest.mark.parametrize(
    ("facts", "reason", "message"),
    [
        ({"reason": "Terminated", "message": SHUTDOWN}, "Evicted", f"worker 0 was evicted from node node1: {SHUTDOWN}"),
        ({"is_terminating": True}, "WorkerLost", "worker 0 was"),  # deleted while the operator was down
    ],
)
def test_a_container_that_ends_with_its_pod_is_a_disruption(
    running: FakeCluster, facts: dict[str, Any], reason: str, message: str
) -> None:
    running.end_container("cifar-worker-0", 143)
    running.update_pod("cifar-worker-0", **facts)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, running.status.restarts, running.status.preemptions) == (reason, 0, 1)
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("role", "reason"), [("worker-0", Reason.NODE_LOST), ("launcher", Reason.NODE_LOST), ("worker-1", Reason.EVICTED)]
)
def test_the_cause_of_a_deletion_is_reported_when_the_pod_is_already_absent(
    running: FakeCluster, role: str, reason: Reason
) -> None:
    disruption = "DeletionByPodGC" if reason is Reason.NODE_LOST else "EvictionByEvictionAPI"
    pod = replace(running.pods.pop(f"cifar-{role}"), disruption=disruption, is_terminating=True)
    status, _ = next_status(JobContext(running.job, replace(running.observed, deleted_pods=(pod,)), running.now))
    (error,) = status.errors
    assert (error.reason, error.pod, error.node) == (reason, pod.name, "node1")
    assert (status.preemptions, status.restarts) == (1, 0)


def test_a_sidecar_that_fails_is_not_mistaken_for_the_program(running: FakeCluster) -> None:
    end = ContainerTermination("proxy", 1, "Error", "", NOON)
    running.update_pod("cifar-launcher", phase="Failed", termination=end)
    running.reconcile(after=5)
    assert running.status.errors[-1].reason == Reason.LAUNCHER_FAILED
    assert running.status.errors[-1].container == "proxy"
