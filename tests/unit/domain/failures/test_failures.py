"""Failed ranks, disruptions and restarts."""

from dataclasses import replace

import pytest

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.pod import ContainerTermination
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import NOON, FakeCluster, phase_of, training_job


def fail_once(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 3)
    cluster.wait(3)
    cluster.reconcile()


def test_a_failed_rank_restarts_the_job_after_ten_seconds(running: FakeCluster) -> None:
    fail_once(running)
    assert (running.status.phase, running.status.attempt, running.status.restarts) == (Phase.RESTARTING, 2, 1)
    running.remove_terminating_pods()
    running.wait(9)
    running.reconcile()
    assert "cifar-launcher" not in running.pods
    running.wait(2)
    running.reconcile()
    assert running.pods["cifar-launcher"].attempt == 2


def test_a_restart_keeps_healthy_workers_and_publishes_hosts_at_once(running: FakeCluster) -> None:
    workers = {name: pod.uid for name, pod in running.pods.items() if "worker" in name}
    fail_once(running)
    running.remove_terminating_pods()
    running.wait(11)
    running.reconcile()
    assert {name: pod.uid for name, pod in running.pods.items() if "worker" in name} == workers
    assert running.pods["cifar-launcher"].hosts.count("slots=1") == 2


def test_the_job_fails_at_its_backoff_limit() -> None:
    cluster = FakeCluster(training_job(runPolicy={"backoffLimit": 1}))
    cluster.start()
    fail_once(cluster)
    cluster.remove_terminating_pods()
    cluster.wait(30)
    cluster.start()
    fail_once(cluster)
    assert phase_of(cluster) is Phase.FAILED
    assert cluster.status.exit_code == 3
    assert [error.attempt for error in cluster.status.errors] == [1, 2]
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.BACKOFF_LIMIT_EXCEEDED


def test_a_deleted_worker_is_replaced_and_does_not_count_as_a_restart(running: FakeCluster) -> None:
    kept = running.pods["cifar-worker-0"].uid
    running.update_pod("cifar-worker-1", is_terminating=True)
    running.reconcile()
    assert (running.status.restarts, running.status.preemptions) == (0, 1)
    assert running.status.errors[-1].reason == Reason.WORKER_LOST
    running.remove_terminating_pods()
    running.wait(11)
    running.start()
    assert phase_of(running) is Phase.RUNNING
    assert running.pods["cifar-worker-0"].uid == kept


def test_a_worker_deleted_before_the_hosts_are_published_is_created_again() -> None:
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    del cluster.pods["cifar-worker-1"]
    cluster.reconcile()
    assert "cifar-worker-1" in cluster.pods
    assert cluster.status.attempt == 1


def test_a_worker_out_of_memory_is_the_reason_even_if_the_launcher_fails_first(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 137)
    running.reconcile()
    running.wait(9)
    running.reconcile()
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
    running.wait(11)
    running.reconcile()
    error = running.status.errors[-1]
    message = f"{cause}; its last lines: {log}" if cause and log else cause or log
    assert (error.pod, error.exit_code, error.message) == (pod, 137, message[:2048])


@pytest.mark.parametrize("words", ["Killed\nKilled\n", "[1,1]<stderr>:Killed\n"])
def test_the_words_of_a_shell_do_not_replace_the_signal_when_mpirun_says_nothing(
    running: FakeCluster, words: str
) -> None:
    running.end_container("cifar-launcher", 137, "Error", words)
    running.wait(11)
    running.reconcile()
    assert running.status.errors[-1].message == "mpirun ended with exit code 137, killed by signal 9"


def test_an_evicted_worker_counts_as_a_preemption(running: FakeCluster) -> None:
    message = "The node was low on resource: memory."
    running.update_pod(
        "cifar-worker-0", phase="Failed", reason="Evicted", disruption="TerminationByKubelet", message=message
    )
    running.reconcile()
    assert running.status.errors[-1].reason == Reason.EVICTED
    assert (running.status.preemptions, running.status.restarts) == (1, 0)


@pytest.mark.parametrize(
    ("pod", "reason", "who"),
    [("cifar-worker-1", Reason.WORKER_LOST, "worker 1"), ("cifar-launcher", Reason.LAUNCHER_FAILED, "the launcher")],
)
def test_a_pod_that_exceeds_its_own_storage_limit_has_failed(
    running: FakeCluster, pod: str, reason: Reason, who: str
) -> None:
    message = 'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi".'
    running.update_pod(pod, phase="Failed", reason="Evicted", message=message)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, error.message) == (reason, f"{who} was evicted: {message}")
    assert (running.status.preemptions, running.status.restarts) == (0, 1)


@pytest.mark.parametrize(
    "reason", ["UnexpectedAdmissionError", "OutOfcpu", "OutOfnvidia.com/gpu", "NodeAffinity", "NodeShutdown"]
)
@pytest.mark.parametrize("role", ["worker-1", "launcher"])
def test_a_pod_that_the_kubelet_rejects_counts_as_a_preemption(running: FakeCluster, role: str, reason: str) -> None:
    running.update_pod(f"cifar-{role}", phase="Failed", reason=reason, message="Pod was rejected: no room")
    running.reconcile()
    error = running.status.errors[-1]
    who = "the launcher" if role == "launcher" else "worker 1"
    assert error.message == f"{who} was rejected by node node1: Pod was rejected: no room"
    assert (error.reason, running.status.preemptions, running.status.restarts) == (Reason.EVICTED, 1, 0)


def test_a_worker_that_no_kubelet_would_admit_has_failed(running: FakeCluster) -> None:
    running.update_pod("cifar-worker-1", phase="Failed", reason="AppArmor", message="Cannot enforce AppArmor")
    running.reconcile()
    assert (running.status.preemptions, running.status.restarts) == (0, 1)


def test_a_worker_that_ends_with_its_node_counts_as_a_preemption(running: FakeCluster) -> None:
    message = "Pod was terminated in response to imminent node shutdown."
    running.end_container("cifar-worker-0", 143)
    running.update_pod("cifar-worker-0", reason="Terminated", message=message)
    running.reconcile()
    assert running.status.errors[-1].message == f"worker 0 was evicted from node node1: {message}"
    assert (running.status.preemptions, running.status.restarts) == (1, 0)


def test_a_worker_on_a_deleted_node_is_reported_as_such(running: FakeCluster) -> None:
    running.update_pod("cifar-worker-0", phase="Failed", disruption="DeletionByPodGC", is_terminating=True)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, error.node, running.status.preemptions) == (Reason.NODE_LOST, "node1", 1)
    assert error.message == "worker 0 was lost with its node node1, which no longer exists"


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


def test_a_start_script_sets_its_reason(running: FakeCluster) -> None:
    running.end_container(
        "cifar-launcher", 1, "Error", '{"reason":"SshUnavailable","message":"worker 10.0.0.2 did not answer"}'
    )
    running.wait(3)
    running.reconcile()
    assert running.status.errors[-1].reason == Reason.SSH_UNAVAILABLE


def test_a_sidecar_that_fails_is_not_mistaken_for_the_program(running: FakeCluster) -> None:
    end = ContainerTermination("proxy", 1, "Error", "", NOON)
    running.update_pod("cifar-launcher", phase="Failed", termination=end)
    running.wait(5)
    running.reconcile()
    assert running.status.errors[-1].reason == Reason.LAUNCHER_FAILED
    assert running.status.errors[-1].container == "proxy"


def test_a_worker_deleted_while_the_operator_was_down_is_not_reported_as_evicted(running: FakeCluster) -> None:
    running.end_container("cifar-worker-0", 143)
    running.update_pod("cifar-worker-0", is_terminating=True)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, running.status.restarts, running.status.preemptions) == (Reason.WORKER_LOST, 0, 1)
