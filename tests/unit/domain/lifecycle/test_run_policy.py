"""Suspension, deadlines, termination, worker loss policy and TTL."""

from dataclasses import replace
from datetime import datetime, timedelta

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pods.pod import ContainerTermination, Pod
from unit.domain.fake_cluster import NOON, FakeCluster, new_cluster, phase_of, running_cluster, training_job


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
    cluster.reconcile(after=5)
    assert cluster.status.conditions[0].reason == Reason.DEADLINE_EXCEEDED


def test_a_job_suspended_at_its_deadline_gets_no_pods_again() -> None:
    cluster = running_cluster(runPolicy={"activeDeadlineSeconds": 60})
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile(after=61)
    cluster.remove_terminating_pods()
    cluster.edit_run_policy(suspend=False)
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.conditions[0].reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert not cluster.pods


def test_a_terminated_suspended_job_has_no_start_time() -> None:
    cluster = new_cluster(runPolicy={"suspend": True})
    cluster.edit_run_policy(terminate=True)
    cluster.reconcile()
    assert cluster.phases == [Phase.SUSPENDED, Phase.TERMINATING, Phase.FAILED]
    assert (cluster.status.start_time, cluster.created_pods) == (None, 0)
    reasons = [event.reason for event in events_between(cluster.job, cluster.statuses[0], cluster.statuses[1])]
    assert reasons == []


def test_a_lost_worker_fails_the_job_if_the_policy_is_fail() -> None:
    cluster = running_cluster(runPolicy={"onWorkerLoss": "Fail"})
    cluster.update_pod("cifar-worker-1", is_terminating=True)
    cluster.reconcile()
    failed = cluster.condition(ConditionType.FAILED)
    assert (phase_of(cluster), failed.reason) == (Phase.FAILED, Reason.WORKER_LOST)
    assert failed.message == "worker 1 was deleted (attempt 1; runPolicy.onWorkerLoss is Fail)"
    assert cluster.status.errors[-1].pod == "cifar-worker-1"


def test_a_lost_launcher_does_not_count_as_a_lost_worker() -> None:
    cluster = running_cluster(runPolicy={"onWorkerLoss": "Fail"})
    cluster.update_pod("cifar-launcher", is_terminating=True)
    cluster.reconcile()
    assert phase_of(cluster) is Phase.RESTARTING


def test_a_finished_job_is_deleted_after_its_ttl(running: FakeCluster) -> None:
    running.edit_run_policy(ttl_seconds_after_finished=60)
    running.end_container("cifar-launcher", 0)
    running.reconcile()
    ended = running.status.completion_time
    assert ended is not None
    early = plan_for(JobContext(running.job, running.observed, ended + timedelta(seconds=59)), None)
    assert (early.delete_job, early.requeue_at) == (False, ended + timedelta(seconds=60))
    assert plan_for(JobContext(running.job, running.observed, ended + timedelta(seconds=60)), None).delete_job


def test_only_times_that_are_not_over_request_a_reconciliation() -> None:
    cluster = new_cluster(runPolicy={"activeDeadlineSeconds": 600}, scheduling={"timeoutSeconds": 60})

    def requeue_at(launcher: Pod) -> datetime | None:
        cluster.update_pod(launcher.name, phase=launcher.phase, termination=launcher.termination)
        return cluster.next_plan().requeue_at

    launcher = cluster.pods["cifar-launcher"]
    assert requeue_at(launcher) == NOON + timedelta(seconds=60)
    cluster.wait(61)
    # The worker that explains the failure may be reported until then, and the scheduling timeout is over.
    end = ContainerTermination("launcher", 1, "Error", "", cluster.now)
    assert requeue_at(replace(launcher, phase="Failed", termination=end)) == cluster.now + timedelta(seconds=2)
