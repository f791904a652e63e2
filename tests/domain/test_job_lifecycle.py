"""The lifecycle of a job: the status in each state of the cluster."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from domain.fake_cluster import NOON, FakeCluster, training_job
from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob_operator.domain.checks.backoff import requeue_at
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.observed import KubeletEventReason, KubeletWarning
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pod import ContainerTermination, ContainerWaiting, Pod
from horovodjob_operator.domain.pod_facts import owned_pod
from horovodjob_operator.domain.status import is_significant, next_status


def phase_of(cluster: FakeCluster) -> Phase | None:
    return cluster.status.phase


@pytest.fixture
def running() -> FakeCluster:
    cluster = FakeCluster(training_job())
    cluster.start()
    assert phase_of(cluster) is Phase.RUNNING
    return cluster


def phases(cluster: FakeCluster) -> list[Phase | None]:
    seen: list[Phase | None] = []
    for status in cluster.statuses:
        if not seen or seen[-1] is not status.phase:
            seen.append(status.phase)
    return seen


def fail_once(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 3)
    cluster.wait(3)
    cluster.reconcile()


def test_a_successful_job_has_four_phases(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    assert phases(running) == [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED]
    assert running.status.exit_code == 0


def test_hosts_are_published_when_every_worker_has_an_address() -> None:
    cluster = FakeCluster(training_job(worker={"replicas": 2, "gpus": 0, "slots": 3}))
    cluster.reconcile()
    cluster.update_pod("cifar-worker-1", node="n", address="10.0.0.9")
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts == ""
    cluster.update_pod("cifar-worker-0", node="n", address="10.0.0.10")
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts == "10.0.0.10 slots=3\n10.0.0.9 slots=3\n"


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_launcher_that_hosts_ranks_is_replica_0(replicas: int) -> None:
    cluster = FakeCluster(training_job(worker={"replicas": replicas, "gpus": 0}, launcher={"asWorker": True}))
    cluster.reconcile()
    workers = [f"cifar-worker-{index}" for index in range(1, replicas)]
    assert set(cluster.pods) == {"cifar-launcher", *workers}
    cluster.update_pod("cifar-launcher", node="n", address="10.0.0.9")
    for name in workers:
        assert cluster.pods["cifar-launcher"].hosts == ""
        cluster.update_pod(name, node="n", address=f"10.0.1.{name[-1]}", is_ready=True)
    cluster.reconcile()
    addresses = ["10.0.0.9", *(f"10.0.1.{index}" for index in range(1, replicas))]
    assert cluster.pods["cifar-launcher"].hosts == "".join(f"{address} slots=1\n" for address in addresses)
    cluster.update_pod("cifar-launcher", is_ready=True)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.replicas) == (Phase.RUNNING, replicas)
    assert cluster.status.workers_ready == f"{replicas}/{replicas}"


def test_workers_are_deleted_and_the_launcher_stays_when_the_job_has_succeeded(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    running.remove_terminating_pods()
    assert set(running.pods) == {"cifar-launcher"}


@pytest.mark.parametrize(("policy", "left"), [("All", 0), ("None", 3)])
def test_clean_pod_policy_selects_the_pods_to_delete(policy: str, left: int) -> None:
    cluster = FakeCluster(training_job(runPolicy={"cleanPodPolicy": policy}))
    cluster.start()
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    assert len(cluster.pods) == left


def test_a_finished_job_stays_finished_after_its_pods_are_deleted(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    final = running.status
    running.pods.clear()
    running.wait(9999)
    running.reconcile()
    assert running.status == final


def test_the_observed_generation_of_a_finished_job_follows_its_spec(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    final = running.status
    running.edit_run_policy(ttl_seconds_after_finished=3600)
    running.reconcile()
    assert running.status.observed_generation == final.observed_generation + 1 == running.job.metadata.generation
    assert running.status.model_copy(update={"observed_generation": final.observed_generation}) == final


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
    ("pod", "reason", "said", "happened"),
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
    ids=["memory", "killed", "launcher", "logs in JSON", "feigned", "silent", "long"],
)
def test_an_error_contains_its_cause_and_the_last_lines_of_the_log(
    running: FakeCluster, pod: str, reason: str, said: str, happened: str
) -> None:
    running.end_container(pod, 137, reason, said)
    running.wait(11)
    running.reconcile()
    error = running.status.errors[-1]
    message = f"{happened}; its last lines: {said}" if happened and said else happened or said
    assert (error.pod, error.exit_code, error.message) == (pod, 137, message[:2048])


def test_an_evicted_worker_counts_as_a_preemption(running: FakeCluster) -> None:
    words = "The node was low on resource: memory."
    running.update_pod(
        "cifar-worker-0", phase="Failed", reason="Evicted", disruption="TerminationByKubelet", message=words
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
    words = 'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi".'
    running.update_pod(pod, phase="Failed", reason="Evicted", message=words)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, error.message) == (reason, f"{who} was evicted: {words}")
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
    words = "Pod was terminated in response to imminent node shutdown."
    running.end_container("cifar-worker-0", 143)
    running.update_pod("cifar-worker-0", reason="Terminated", message=words)
    running.reconcile()
    assert running.status.errors[-1].message == f"worker 0 was evicted from node node1: {words}"
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


WORDS = (
    "waiting for pod cifar-worker-1 to terminate, which node node1 should have stopped by 12:00:30Z: if that node "
    "does not respond, delete it or taint it node.kubernetes.io/out-of-service"
)


def message_of(cluster: FakeCluster) -> str:
    ready = cluster.status.condition(ConditionType.READY)
    return ready.message if ready else ""


def test_a_pod_that_its_node_does_not_stop_is_reported_with_a_remedy(running: FakeCluster) -> None:
    leaves_at = NOON + timedelta(seconds=30)
    running.update_pod(
        "cifar-worker-1", is_terminating=True, deletion_timestamp=leaves_at, disruption="DeletionByTaintManager"
    )
    running.reconcile()
    error = running.status.errors[-1]
    told = "worker 1 was evicted from node node1: DeletionByTaintManager"
    assert (error.reason, error.message) == (Reason.EVICTED, told)
    running.pods = {name: pod for name, pod in running.pods.items() if pod.deletion_timestamp or not pod.is_terminating}
    running.wait(39)
    running.reconcile()
    assert (running.status.phase, message_of(running)) == (Phase.RESTARTING, "the pods are being created and placed")
    _, outcome = next_status(running.context)
    assert plan_for(running.context, outcome).requeue_at == NOON + timedelta(seconds=40)
    running.wait(1)
    running.reconcile()
    assert (running.status.phase, message_of(running)) == (Phase.RESTARTING, WORDS)
    running.remove_terminating_pods()
    running.start()
    assert (running.status.phase, running.status.attempt, running.status.preemptions) == (Phase.RUNNING, 2, 1)


def test_a_pod_that_never_terminates_does_not_keep_the_nodes_of_the_others(running: FakeCluster) -> None:
    running.update_pod("cifar-worker-1", is_terminating=True, deletion_timestamp=NOON + timedelta(seconds=30))
    running.reconcile()
    running.pods = {name: pod for name, pod in running.pods.items() if pod.deletion_timestamp or not pod.is_terminating}
    running.wait(12)
    running.reconcile()
    running.wait(600)
    running.reconcile()
    assert message_of(running).startswith(
        "1 of 3 pods had a node after scheduling.timeoutSeconds, 600 s (waiting for pod"
    )
    assert all(pod.is_terminating for pod in running.pods.values())


def test_a_pod_of_an_earlier_job_that_its_node_does_not_stop_is_reported_too() -> None:
    cluster = FakeCluster(training_job())
    old = Pod("cifar-worker-1", "old", Role.WORKER, 1, node="node1", is_terminating=True, deletion_timestamp=NOON)
    cluster.reconcile()
    del cluster.pods["cifar-worker-1"]
    observed = replace(cluster.observed, stale_owner_pods=(old,))
    status, _ = next_status(JobContext(cluster.job, observed, NOON + timedelta(seconds=10)))
    assert status.conditions[0].message == WORDS.replace("12:00:30Z", "12:00:00Z")


def test_an_elastic_job_reports_an_overdue_pod_while_it_continues() -> None:
    cluster = FakeCluster(training_job(elastic={"minReplicas": 1}))
    cluster.start()
    cluster.update_pod("cifar-worker-1", is_terminating=True, deletion_timestamp=NOON)
    cluster.reconcile()
    cluster.wait(10)
    cluster.reconcile()
    running = cluster.status.condition(ConditionType.RUNNING)
    assert running is not None
    assert running.message == f"up to 1 rank run on 1 worker of 2; {WORDS.replace('12:00:30Z', '12:00:00Z')}"


def test_a_start_script_sets_its_reason(running: FakeCluster) -> None:
    running.end_container(
        "cifar-launcher", 1, "Error", '{"reason":"SshUnavailable","message":"worker 10.0.0.2 did not answer"}'
    )
    running.wait(3)
    running.reconcile()
    assert running.status.errors[-1].reason == Reason.SSH_UNAVAILABLE


def test_suspending_deletes_all_pods_and_resuming_starts_again(running: FakeCluster) -> None:
    running.edit_run_policy(suspend=True)
    running.reconcile()
    running.remove_terminating_pods()
    running.reconcile()
    assert phase_of(running) is Phase.SUSPENDED
    assert running.status.start_time is None
    assert not running.pods
    running.edit_run_policy(suspend=False)
    running.wait(5)
    running.start()
    assert phase_of(running) is Phase.RUNNING
    assert (running.status.attempt, running.status.restarts, running.status.preemptions) == (2, 0, 0)


def test_a_deadline_ends_the_launcher_keeps_its_pod_and_then_fails_the_job() -> None:
    cluster = FakeCluster(training_job(runPolicy={"activeDeadlineSeconds": 60}))
    cluster.start()
    cluster.wait(61)
    cluster.reconcile()
    assert phase_of(cluster) is Phase.TERMINATING
    assert cluster.pods["cifar-launcher"].is_stopping
    assert not cluster.pods["cifar-launcher"].is_terminating
    cluster.remove_terminating_pods()
    cluster.end_container("cifar-launcher", 143)
    cluster.reconcile()
    assert phase_of(cluster) is Phase.FAILED
    assert cluster.status.conditions[0].reason == Reason.DEADLINE_EXCEEDED


def test_a_job_has_one_deadline_however_often_it_is_suspended() -> None:
    cluster = FakeCluster(training_job(runPolicy={"activeDeadlineSeconds": 60}))
    for _ in range(5):
        cluster.start()
        cluster.wait(11)
        cluster.edit_run_policy(suspend=True)
        cluster.reconcile()
        cluster.remove_terminating_pods()
        cluster.wait(1000)
        cluster.edit_run_policy(suspend=False)
    cluster.start()
    assert (phase_of(cluster), cluster.status.active_seconds) == (Phase.RUNNING, 55)
    cluster.wait(5)
    cluster.reconcile()
    assert cluster.status.conditions[0].reason == Reason.DEADLINE_EXCEEDED


def test_a_job_suspended_at_its_deadline_gets_no_pods_again() -> None:
    cluster = FakeCluster(training_job(runPolicy={"activeDeadlineSeconds": 60}))
    cluster.start()
    cluster.edit_run_policy(suspend=True)
    cluster.wait(61)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.edit_run_policy(suspend=False)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.conditions[0].reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert not cluster.pods


def test_a_terminated_job_ends_from_every_phase_and_keeps_its_launcher(running: FakeCluster) -> None:
    running.edit_run_policy(terminate=True)
    running.reconcile()
    assert phase_of(running) is Phase.TERMINATING
    assert running.pods["cifar-launcher"].is_stopping
    running.remove_terminating_pods()
    running.end_container("cifar-launcher", 143)
    running.reconcile()
    failed = running.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message) == (Reason.TERMINATED, "the job was ended: runPolicy.terminate is true")
    assert (running.status.exit_code, set(running.pods)) == (143, {"cifar-launcher"})


def test_a_terminated_suspended_job_has_no_start_time() -> None:
    cluster = FakeCluster(training_job(runPolicy={"suspend": True}))
    cluster.reconcile()
    cluster.edit_run_policy(terminate=True)
    cluster.reconcile()
    assert phases(cluster) == [Phase.SUSPENDED, Phase.TERMINATING, Phase.FAILED]
    assert (cluster.status.start_time, cluster.created_pods) == (None, 0)
    told = [event.reason for event in events_between(cluster.job, cluster.statuses[0], cluster.statuses[1])]
    assert told == []


def test_a_lost_worker_fails_the_job_if_the_policy_is_fail() -> None:
    cluster = FakeCluster(training_job(runPolicy={"onWorkerLoss": "Fail"}))
    cluster.start()
    cluster.update_pod("cifar-worker-1", is_terminating=True)
    cluster.reconcile()
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (phase_of(cluster), failed.reason) == (Phase.FAILED, Reason.WORKER_LOST)
    assert failed.message == "worker 1 was deleted (attempt 1; runPolicy.onWorkerLoss is Fail)"
    assert cluster.status.errors[-1].pod == "cifar-worker-1"


def test_a_lost_launcher_does_not_count_as_a_lost_worker() -> None:
    cluster = FakeCluster(training_job(runPolicy={"onWorkerLoss": "Fail"}))
    cluster.start()
    cluster.update_pod("cifar-launcher", is_terminating=True)
    cluster.reconcile()
    assert phase_of(cluster) is Phase.RESTARTING


def half_placed(cluster: FakeCluster) -> None:
    cluster.reconcile()
    cluster.schedule_pods(at_most=2)
    cluster.reconcile()


def test_pods_that_are_not_all_scheduled_are_deleted_and_created_again_later() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    half_placed(cluster)
    cluster.wait(59)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.QUEUED, 1)
    cluster.wait(1)
    cluster.reconcile()
    assert all(pod.is_terminating for pod in cluster.pods.values())
    ready = cluster.status.condition(ConditionType.READY)
    assert ready is not None
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


def test_the_requeue_delay_increases_and_differs_between_jobs() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    delays = []
    for _ in range(4):
        half_placed(cluster)
        cluster.wait(60)
        cluster.reconcile()
        cluster.remove_terminating_pods()
        until = requeue_at(cluster.job)
        assert until is not None
        delays.append((until - cluster.now).total_seconds())
        cluster.now = until
    assert [5 * 2**n <= delay <= 15 * 2**n for n, delay in enumerate(delays)] == [True] * 4
    other = cluster.job.model_copy(update={"metadata": cluster.job.metadata.model_copy(update={"uid": "other"})})
    assert requeue_at(other) != requeue_at(cluster.job)


def test_running_time_does_not_count_for_the_scheduling_timeout() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    cluster.reconcile()
    cluster.schedule_pods()
    cluster.update_pod("cifar-worker-1", address="")
    cluster.reconcile()
    cluster.wait(100)
    del cluster.pods["cifar-worker-1"]
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.QUEUED, 1)
    cluster.wait(59)
    cluster.reconcile()
    assert cluster.status.attempt == 1
    cluster.wait(1)
    cluster.reconcile()
    assert cluster.status.attempt == 2


def test_a_finished_job_is_deleted_after_its_ttl(running: FakeCluster) -> None:
    running.edit_run_policy(ttl_seconds_after_finished=60)
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    ended = running.status.completion_time
    assert ended is not None
    early = plan_for(JobContext(running.job, running.observed, ended + timedelta(seconds=59)), None)
    assert (early.delete_job, early.requeue_at) == (False, ended + timedelta(seconds=60))
    assert plan_for(JobContext(running.job, running.observed, ended + timedelta(seconds=60)), None).delete_job


def test_a_deadline_that_passes_during_a_pass_causes_another_pass_at_once() -> None:
    cluster = FakeCluster(training_job(runPolicy={"activeDeadlineSeconds": 60}))
    cluster.start()
    status, outcome = next_status(JobContext(cluster.job, cluster.observed, NOON + timedelta(seconds=59)))
    assert status == cluster.status
    plan = plan_for(JobContext(cluster.job, cluster.observed, NOON + timedelta(seconds=61)), outcome)
    assert plan.requeue_at == NOON + timedelta(seconds=60)


def test_an_image_that_cannot_be_pulled_is_reported() -> None:
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    cluster.schedule_pods()
    cluster.update_pod(
        "cifar-worker-0", phase="Pending", waiting=ContainerWaiting("worker", "ImagePullBackOff", "no such image")
    )
    cluster.reconcile()
    ready = cluster.status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.reason == Reason.IMAGE_PULL_FAILED
    assert "no such image" in ready.message
    assert len(cluster.status.errors) == 1


def test_a_job_that_cannot_pull_its_image_frees_its_nodes_and_tries_again() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    cluster.reconcile()
    cluster.schedule_pods()
    waiting = ContainerWaiting("worker", "ImagePullBackOff", "Back-off pulling image")
    cluster.update_pod("cifar-worker-1", phase="Pending", waiting=waiting)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.errors[-1].reason) == (Phase.STARTING, Reason.IMAGE_PULL_FAILED)
    cluster.wait(59)
    cluster.reconcile()
    assert not any(pod.is_terminating for pod in cluster.pods.values())
    cluster.wait(1)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.errors[-1].reason) == (Phase.QUEUED, Reason.SCHEDULING_TIMEOUT)
    assert all(pod.is_terminating for pod in cluster.pods.values())
    cluster.remove_terminating_pods()
    cluster.wait(60)
    cluster.start()
    assert (phase_of(cluster), cluster.status.attempt, cluster.status.restarts) == (Phase.RUNNING, 2, 0)


def test_an_image_that_runs_as_root_is_reported_with_the_field_that_helps() -> None:
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    words = "container has runAsNonRoot and image will run as root"
    cluster.update_pod(
        "cifar-worker-0", node="n", waiting=ContainerWaiting("worker", "CreateContainerConfigError", words)
    )
    cluster.reconcile()
    stalled = cluster.status.condition(ConditionType.STALLED)
    assert stalled is not None
    assert stalled.status == "True"
    assert "spec.podSecurity" in stalled.message


def test_a_failed_mount_is_reported_until_the_pod_has_an_address() -> None:
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    for name in cluster.pods:
        cluster.update_pod(name, node="n", address="" if name == "cifar-worker-1" else "10.0.0.1")
    observed = replace(
        cluster.observed, kubelet_warning=KubeletWarning(KubeletEventReason.MOUNT_FAILED, 'secret "nope" not found')
    )
    status, _ = next_status(JobContext(cluster.job, observed, NOON))
    stalled = status.condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.STORAGE_UNAVAILABLE)
    assert stalled.message == 'pod cifar-worker-1 cannot mount its volumes: secret "nope" not found'
    cluster.update_pod("cifar-worker-1", address="10.0.0.2")
    cluster.reconcile()
    mended = cluster.status.condition(ConditionType.STALLED)
    assert mended is not None
    assert mended.status == "False"


def test_the_message_of_the_scheduler_is_reported() -> None:
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    cluster.update_pod(
        "cifar-worker-0", unschedulable_message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )
    cluster.reconcile()
    ready = cluster.status.condition(ConditionType.READY)
    assert ready is not None
    assert "Insufficient nvidia.com/gpu" in ready.message


def test_a_sidecar_that_fails_is_not_mistaken_for_the_program(running: FakeCluster) -> None:
    end = ContainerTermination("proxy", 1, "Error", "", NOON)
    running.update_pod("cifar-launcher", phase="Failed", termination=end)
    running.wait(5)
    running.reconcile()
    assert running.status.errors[-1].reason == Reason.LAUNCHER_FAILED
    assert running.status.errors[-1].container == "proxy"


def test_changes_of_counts_alone_are_not_significant() -> None:
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    cluster.schedule_pods()
    cluster.reconcile()
    before = cluster.status
    cluster.update_pod("cifar-worker-0", is_ready=True)
    cluster.reconcile()
    assert cluster.status.workers_ready == "1/2"
    assert not is_significant(before, cluster.status)


def test_each_transition_has_its_event_once(running: FakeCluster) -> None:
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    told = [
        event.reason
        for old, new in zip([training_job().status, *running.statuses], running.statuses, strict=False)
        for event in events_between(running.job, old, new)
    ]
    assert told == ["Created", "Admitted", "WorkersReady", "Started", "Succeeded"]


def raw_launcher(*states: tuple[str, dict[str, Any]], phase: str = "Running") -> dict[str, Any]:
    labels = {"horovodjob.dev/job": "cifar", "horovodjob.dev/role": "launcher"}
    labels |= {"horovodjob.dev/replica-index": "0", "horovodjob.dev/attempt": "1"}
    metadata = {"name": "cifar-launcher", "namespace": "team", "uid": "u", "labels": labels}
    return {
        "metadata": metadata,
        "status": {"phase": phase, "containerStatuses": [{"name": name, "state": state} for name, state in states]},
    }


def test_a_job_has_finished_when_its_main_container_ends_while_a_sidecar_runs(running: FakeCluster) -> None:
    own = ("launcher", {"terminated": {"exitCode": 0, "reason": "Completed"}})
    seen = owned_pod(raw_launcher(own, ("proxy", {"running": {}})))
    assert seen is not None
    running.update_pod(
        "cifar-launcher",
        phase=seen.pod.phase,
        termination=seen.pod.termination,
        has_running_sidecars=seen.pod.has_running_sidecars,
    )
    running.reconcile()
    assert phase_of(running) is Phase.SUCCEEDED
    assert running.pods["cifar-launcher"].is_stopping


def test_a_worker_deleted_while_the_operator_was_down_is_not_reported_as_evicted(running: FakeCluster) -> None:
    running.end_container("cifar-worker-0", 143)
    running.update_pod("cifar-worker-0", is_terminating=True)
    running.reconcile()
    error = running.status.errors[-1]
    assert (error.reason, running.status.restarts, running.status.preemptions) == (Reason.WORKER_LOST, 0, 1)
