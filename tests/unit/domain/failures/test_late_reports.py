"""A kubelet that reports the end of a worker late: the wait for its report, and the correction of what was judged."""

import json

import pytest

from horovodjob.api.constants import ConditionType, Phase
from horovodjob_operator.domain.checks.failure import REPORT_SECONDS
from unit.domain.fake_cluster import FakeCluster, phase_of, running_cluster

EVICTION = "The node was low on resource: memory."


def launcher_fails(cluster: FakeCluster, *ended: str) -> None:
    """The launcher fails, and reports the workers that had no ssh server any more."""
    addresses = " ".join(cluster.pods[name].address for name in ended)
    cluster.end_container("cifar-launcher", 1, message=json.dumps({"ended": addresses}) if ended else "")
    cluster.reconcile()


def evict(cluster: FakeCluster, name: str = "cifar-worker-1", **facts: object) -> None:
    """The kubelet reports an eviction under pressure on its node."""
    disruption = {"reason": "Evicted", "disruption": "TerminationByKubelet", "message": EVICTION}
    cluster.update_pod(name, phase="Failed", **(disruption | facts))
    cluster.reconcile()


def counts(cluster: FakeCluster) -> tuple[int, int]:
    return cluster.status.restarts, cluster.status.preemptions


@pytest.fixture
def strict() -> FakeCluster:
    """A running job that restarts after no failure."""
    return running_cluster(runPolicy={"backoffLimit": 0})


def test_a_worker_that_has_ended_is_waited_for_until_its_kubelet_reports(strict: FakeCluster) -> None:
    launcher_fails(strict, "cifar-worker-1")
    strict.reconcile(after=REPORT_SECONDS - 5)
    assert phase_of(strict) is Phase.RUNNING
    evict(strict)
    (error,) = strict.status.errors
    assert (error.reason, error.pod, counts(strict)) == ("Evicted", "cifar-worker-1", (0, 1))
    assert phase_of(strict) is Phase.RESTARTING


def test_the_wait_for_the_report_has_an_end_and_blames_no_rank(strict: FakeCluster) -> None:
    launcher_fails(strict, "cifar-worker-1")
    strict.reconcile(after=REPORT_SECONDS)
    (error,) = strict.status.errors
    assert error.message == "worker 1 has ended, and its node node1 has reported no reason for 120 s"
    assert (error.reason, error.pod, counts(strict)) == ("WorkerLost", "cifar-worker-1", (0, 1))


def test_if_all_workers_answer_a_failed_rank_is_blamed_soon(strict: FakeCluster) -> None:
    launcher_fails(strict)
    strict.reconcile(after=2)
    assert phase_of(strict) is Phase.FAILED


@pytest.fixture
def judged() -> FakeCluster:
    """A job whose rank was blamed."""
    cluster = running_cluster(runPolicy={"backoffLimit": 3})
    launcher_fails(cluster)
    cluster.reconcile(after=2)
    assert (cluster.status.errors[-1].reason, counts(cluster)) == ("RankFailed", (1, 0))
    return cluster


def test_a_late_report_of_an_eviction_corrects_the_count(judged: FakeCluster) -> None:
    judged.wait(1)
    evict(judged)
    (error,) = judged.status.errors
    assert (error.reason, error.attempt, error.pod, error.exit_code) == ("Evicted", 1, "cifar-worker-1", 1)
    assert (phase_of(judged), counts(judged)) == (Phase.RESTARTING, (0, 1))
    ready = judged.condition(ConditionType.READY)
    assert (ready.reason, EVICTION in ready.message) == ("Evicted", True)
    judged.remove_terminating_pods()
    judged.reconcile(after=60)
    assert len(judged.status.errors) == 1
    assert {"cifar-launcher", "cifar-worker-0", "cifar-worker-1"} == set(judged.pods)


def test_a_late_report_of_a_storage_limit_names_the_worker_and_counts_as_before(judged: FakeCluster) -> None:
    judged.wait(1)
    evict(judged, disruption="", message="Pod ephemeral local storage usage exceeds its limit")
    (error,) = judged.status.errors
    assert (error.reason, error.pod, counts(judged)) == ("WorkerLost", "cifar-worker-1", (1, 0))


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_worker_that_ends_after_the_attempt_or_that_we_delete_is_no_cause_of_its_end(
    judged: FakeCluster, is_deleted: bool
) -> None:
    if is_deleted:
        judged.wait(1)
        judged.update_pod("cifar-worker-1", is_terminating=True, phase="Failed")
    else:
        judged.wait(3)
        judged.end_container("cifar-worker-1", 137, reason="OOMKilled")
    judged.reconcile()
    assert (judged.status.errors[-1].reason, counts(judged)) == ("RankFailed", (1, 0))
