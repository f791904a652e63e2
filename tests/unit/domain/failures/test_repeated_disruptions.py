"""Disruptions that repeat: the delay of the next attempt grows until an attempt lasts."""

from datetime import timedelta

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.backoff import restart_at
from unit.domain.fake_cluster import FakeCluster, new_cluster, running_cluster, training_job

PLUGIN = "Pod was rejected: Allocate failed due to device plugin is broken"
REJECTION = f"Evicted: worker 1 was rejected by node node1: {PLUGIN}"


def reject(cluster: FakeCluster, name: str = "cifar-worker-1") -> None:
    cluster.update_pod(name, node="node1", phase="Failed", reason="UnexpectedAdmissionError", message=PLUGIN)
    cluster.reconcile()


def restart_delay(cluster: FakeCluster) -> float:
    """Seconds until the next attempt; by then it has started."""
    at = restart_at(cluster.job, cluster.now)
    assert at is not None
    assert f"starts at {at:%H:%M:%SZ}" in cluster.message
    delay = (at - cluster.now).total_seconds()
    cluster.remove_terminating_pods()
    cluster.now = at - timedelta(seconds=1)
    cluster.reconcile()
    assert "cifar-launcher" not in cluster.pods
    assert cluster.next_plan().requeue_at == at
    cluster.now = at
    cluster.reconcile()
    assert "cifar-launcher" in cluster.pods
    return delay


def test_the_delay_grows_with_disruptions_that_repeat_and_the_status_counts_them() -> None:
    cluster = new_cluster()
    delays, messages = [], []
    for _ in range(12):
        cluster.wait(2)
        reject(cluster)
        messages.append(cluster.message.partition("; attempt")[0])
        delays.append(restart_delay(cluster))
    assert delays == [10, 20, 40, 80, 160, 320, *[360] * 6]
    assert (cluster.status.preemptions, cluster.status.restarts) == (12, 0)
    assert messages[0] == f"attempt 1 ended, {REJECTION}"
    assert messages[1] == f"attempt 2 ended, the second disruption in a row, {REJECTION}"
    assert messages[8] == f"attempt 9 ended, the ninth disruption in a row, {REJECTION}"
    assert messages[11] == f"attempt 12 ended, the tenth or a later disruption in a row, {REJECTION}"


def evict_after(cluster: FakeCluster, seconds: float) -> float:
    """Delay of the next attempt of a job that runs, and is evicted after this time."""
    cluster.start()
    cluster.wait(seconds)
    cluster.update_pod("cifar-worker-1", is_terminating=True, disruption="EvictionByEvictionAPI")
    cluster.reconcile()
    return restart_delay(cluster)


def test_an_attempt_that_lasted_or_a_suspension_ends_the_row_of_disruptions() -> None:
    cluster = FakeCluster(training_job())
    lengths = (5, 5, 590, 601, 5)
    assert [evict_after(cluster, seconds) for seconds in lengths] == [10, 20, 40, 10, 20]
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.edit_run_policy(suspend=False)
    assert evict_after(cluster, 5) == 10


def test_failures_and_disruptions_in_turns_have_the_delay_of_the_failures() -> None:
    cluster = FakeCluster(training_job())
    delays = []
    for _ in range(3):
        cluster.start()
        cluster.end_container("cifar-launcher", 1)
        cluster.reconcile(after=3)
        assert "in a row" not in cluster.message
        delays += [restart_delay(cluster), evict_after(cluster, 5)]
    assert delays == [10, 10, 20, 20, 40, 40]


def test_a_worker_of_an_elastic_job_is_replaced_after_a_delay_if_its_disruptions_repeat() -> None:
    cluster = running_cluster(elastic={"minReplicas": 1})
    delays = []
    for number in range(4):
        cluster.wait(2)
        reject(cluster)
        lost_at = cluster.now
        cluster.remove_terminating_pods()
        cluster.reconcile()
        at = cluster.next_plan().requeue_at
        assert at is not None
        assert cluster.message.endswith(f"disruption in a row, {REJECTION}") == (number > 0)
        assert "cifar-worker-1" not in cluster.pods
        cluster.now = at
        cluster.reconcile()
        assert "cifar-worker-1" in cluster.pods
        delays.append((cluster.now - lost_at).total_seconds())
    assert delays == [1, 10, 20, 40]
    assert cluster.status.phase is Phase.RUNNING


def test_a_worker_of_an_elastic_job_does_not_wait_for_the_delay_of_another() -> None:
    cluster = running_cluster(worker={"replicas": 3, "gpus": 0}, elastic={"minReplicas": 1})
    for _ in range(2):
        cluster.wait(2)
        reject(cluster)
        cluster.remove_terminating_pods()
        cluster.reconcile(after=1)
    cluster.update_pod("cifar-worker-2", is_terminating=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile(after=1)
    assert {"cifar-worker-1", "cifar-worker-2"} & set(cluster.pods) == {"cifar-worker-2"}


def test_an_error_from_a_clock_that_was_ahead_delays_no_attempt() -> None:
    ahead = timedelta(days=400)
    cluster = running_cluster()
    cluster.now += ahead
    cluster.end_container("cifar-launcher", 1)
    cluster.reconcile(after=15)
    cluster.remove_terminating_pods()
    cluster.now -= ahead  # another replica, with the correct clock
    cluster.reconcile()
    assert "cifar-launcher" in cluster.pods


def test_an_older_error_from_a_clock_that_was_ahead_delays_no_replacement_and_hides_no_later_loss() -> None:
    cluster = running_cluster(elastic={"minReplicas": 1, "maxReplicas": 4})
    cluster.now += timedelta(hours=1)
    lose(cluster, "cifar-worker-1")
    cluster.now -= timedelta(hours=1)
    lose(cluster, "cifar-worker-0")  # with the correct clock: the last error is credible
    cluster.reconcile(after=20)
    assert {"cifar-worker-0", "cifar-worker-1"} <= cluster.pods.keys()
    cluster.schedule_pods()
    cluster.reconcile()
    lose(cluster, "cifar-worker-1")
    assert [error.pod for error in cluster.status.errors] == [f"cifar-worker-{index}" for index in (1, 0, 1)]


def lose(cluster: FakeCluster, name: str) -> None:
    """Somebody deletes a worker."""
    cluster.update_pod(name, is_terminating=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()


def test_times_of_a_clock_that_was_ahead_delay_no_timeout() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    cluster.now += timedelta(hours=1)
    cluster.reconcile()
    cluster.now -= timedelta(hours=1)
    for name in cluster.pods:
        cluster.update_pod(name, created_at=cluster.now)
    cluster.schedule_pods(at_most=2)
    cluster.reconcile()
    cluster.reconcile(after=61)
    assert cluster.status.errors[-1].reason == Reason.SCHEDULING_TIMEOUT


def test_an_error_from_a_clock_that_was_ahead_delays_no_attempt_after_a_scheduling_timeout() -> None:
    cluster = FakeCluster(training_job(scheduling={"timeoutSeconds": 60}))
    cluster.now += timedelta(hours=1)
    cluster.reconcile()
    cluster.schedule_pods(at_most=2)
    cluster.reconcile(after=61)
    cluster.remove_terminating_pods()
    cluster.now -= timedelta(hours=1)
    cluster.reconcile()
    assert "cifar-launcher" in cluster.pods
