"""Pods that their node does not stop in time."""

from dataclasses import replace
from datetime import timedelta

from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import NOON, FakeCluster, running_cluster, training_job

MESSAGE = (
    "waiting for pod cifar-worker-1 to terminate, which node node1 should have stopped by 12:00:30Z: if that node "
    "does not respond, delete it or taint it node.kubernetes.io/out-of-service"
)


def test_a_pod_that_its_node_does_not_stop_is_reported_with_a_remedy(running: FakeCluster) -> None:
    leaves_at = NOON + timedelta(seconds=30)
    running.update_pod(
        "cifar-worker-1", is_terminating=True, deletion_timestamp=leaves_at, disruption="DeletionByTaintManager"
    )
    running.reconcile()
    error = running.status.errors[-1]
    message = "worker 1 was evicted from node node1: DeletionByTaintManager"
    assert (error.reason, error.message) == (Reason.EVICTED, message)
    running.pods = {name: pod for name, pod in running.pods.items() if pod.deletion_timestamp or not pod.is_terminating}
    running.reconcile(after=39)
    assert (running.status.phase, running.message) == (Phase.RESTARTING, "the pods are being created and placed")
    assert running.next_plan().requeue_at == NOON + timedelta(seconds=40)
    running.reconcile(after=1)
    assert (running.status.phase, running.message) == (Phase.RESTARTING, MESSAGE)
    running.remove_terminating_pods()
    running.start()
    assert (running.status.phase, running.status.attempt, running.status.preemptions) == (Phase.RUNNING, 2, 1)


def test_a_pod_that_never_terminates_does_not_keep_the_nodes_of_the_others(running: FakeCluster) -> None:
    running.update_pod("cifar-worker-1", is_terminating=True, deletion_timestamp=NOON + timedelta(seconds=30))
    running.reconcile()
    running.pods = {name: pod for name, pod in running.pods.items() if pod.deletion_timestamp or not pod.is_terminating}
    running.reconcile(after=12)
    running.reconcile(after=600)
    assert running.message.startswith("1 of 3 pods had a node after scheduling.timeoutSeconds, 600 s (waiting for pod")
    assert all(pod.is_terminating for pod in running.pods.values())


def test_a_pod_of_an_earlier_job_that_its_node_does_not_stop_is_reported_too() -> None:
    cluster = FakeCluster(training_job())
    old = Pod("cifar-worker-1", "old", Role.WORKER, 1, node="node1", is_terminating=True, deletion_timestamp=NOON)
    cluster.reconcile()
    del cluster.pods["cifar-worker-1"]
    observed = replace(cluster.observed, stale_owner_pods=(old,))
    status, _ = next_status(JobContext(cluster.job, observed, NOON + timedelta(seconds=10)))
    assert status.conditions[0].message == MESSAGE.replace("12:00:30Z", "12:00:00Z")


def test_an_elastic_job_reports_an_overdue_pod_while_it_continues() -> None:
    cluster = running_cluster(elastic={"minReplicas": 1})
    cluster.update_pod("cifar-worker-1", is_terminating=True, deletion_timestamp=NOON)
    cluster.reconcile()
    cluster.reconcile(after=10)
    running = cluster.condition(ConditionType.RUNNING)
    assert running.message == f"up to 1 rank run on 1 worker of 2; {MESSAGE.replace('12:00:30Z', '12:00:00Z')}"


def test_a_job_that_cannot_end_reports_the_overdue_pod_and_a_remedy(running: FakeCluster) -> None:
    running.edit_run_policy(active_deadline_seconds=1)
    running.reconcile(after=2)
    reason, plain = Reason.DEADLINE_EXCEEDED, running.message
    leaves_at = NOON + timedelta(seconds=30)
    running.update_pod("cifar-worker-1", deletion_timestamp=leaves_at)
    running.pods = {name: pod for name, pod in running.pods.items() if pod.deletion_timestamp or not pod.is_terminating}
    running.end_container("cifar-launcher", 143)
    running.reconcile()
    assert running.message == plain
    assert running.next_plan().requeue_at == leaves_at + timedelta(seconds=10)
    running.now = leaves_at + timedelta(seconds=10)
    for _ in range(3):
        running.reconcile()
        running.wait(10)
        ready = running.status.conditions[0]
        assert (running.status.phase, ready.reason) == (Phase.TERMINATING, reason)
        assert running.message == f"{plain}; {MESSAGE}"
    assert running.next_plan().requeue_at is None
    running.remove_terminating_pods()
    running.reconcile()
    failed = running.condition(ConditionType.FAILED)
    assert (failed.status, failed.reason, failed.message) == ("True", reason, plain)


def test_a_job_that_cannot_end_reports_a_node_that_does_not_report(running: FakeCluster) -> None:
    running.update_pod("cifar-launcher", has_unready_node=True)
    running.edit_run_policy(terminate=True)
    running.reconcile()
    plain = "the job was ended: runPolicy.terminate is true"
    assert running.message == (
        f"{plain}; waiting for pod cifar-launcher to end on node node1, which does not report to Kubernetes: if that "
        "machine is off, delete the node or taint it node.kubernetes.io/out-of-service"
    )
    running.update_pod("cifar-launcher", has_unready_node=False)
    running.reconcile()
    assert (running.status.phase, running.message) == (Phase.TERMINATING, plain)


def test_a_terminating_pod_that_has_ended_does_not_prevent_the_end_of_the_job(running: FakeCluster) -> None:
    running.edit_run_policy(terminate=True)
    running.reconcile()
    running.end_container("cifar-launcher", 143)
    running.end_container("cifar-worker-0", 143)
    running.update_pod("cifar-worker-1", phase="Failed", deletion_timestamp=NOON)
    running.reconcile(after=60)
    assert running.status.phase is Phase.FAILED
