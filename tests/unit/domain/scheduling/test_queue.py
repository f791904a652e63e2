"""Queues of Kueue: waiting, admission, eviction, and what of the quota a job gives back."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from horovodjob.api.constants import EventReason, Phase, Reason, Role
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.plan import Plan, plan_for_deleted_job
from horovodjob_operator.domain.pods.observed import Refusal
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.domain.status import Urgency, urgency
from horovodjob_operator.errors import InvalidJob
from horovodjob_operator.kueue.pod_admission import Admission
from horovodjob_operator.kueue.workload_manifest import job_workload, workload_name
from horovodjob_operator.kueue.workload_plan import workload_plan
from unit.domain.fake_cluster import phase_of
from unit.domain.scheduling.queued_cluster import QueuedCluster, queued_job

TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"


@pytest.fixture
def waiting() -> QueuedCluster:
    """A job of two workers whose Workload exists."""
    cluster = QueuedCluster(queued_job())
    cluster.reconcile()
    return cluster


@pytest.fixture
def running(waiting: QueuedCluster) -> QueuedCluster:
    """The same job, admitted and running."""
    waiting.admit()
    waiting.run_to_running()
    assert phase_of(waiting) is Phase.RUNNING
    return waiting


@pytest.fixture
def late() -> QueuedCluster:
    """An admitted job whose pods had no nodes in time."""
    cluster = QueuedCluster(queued_job(scheduling={"timeoutSeconds": 60}))
    cluster.reconcile()
    cluster.admit()
    cluster.reconcile()
    cluster.schedule_pods(at_most=1)
    cluster.reconcile(after=61)
    return cluster


# ---- waiting ---------------------------------------------------------------------------------------------------


def test_a_job_that_enters_its_queue_has_one_event_and_one_when_it_is_admitted(waiting: QueuedCluster) -> None:
    waiting.make_wait()
    waiting.reconcile()
    queued = waiting.status
    waiting.admit()
    waiting.reconcile()
    statuses = [waiting.job.status.model_copy(update={"phase": None}), *waiting.statuses]
    events = [event for old, new in pairwise(statuses) for event in events_between(waiting.job, old, new)]
    assert [event.reason for event in events] == [EventReason.QUEUED, EventReason.CREATED]
    assert "admitted by queue gpus of ClusterQueue team, flavors spot" in events[1].note
    waiting.run_to_running()
    (event,) = events_between(waiting.job, queued, waiting.status)
    assert event.reason == EventReason.STARTED
    assert event.note.startswith("admitted by queue gpus of ClusterQueue team, flavors spot: "), "if it runs at once"


def test_a_waiting_workload_follows_the_job(waiting: QueuedCluster) -> None:
    waiting.label(queue_name="other", priority_class="urgent", max_exec_time_seconds="60")
    waiting.reconcile()
    workload = waiting.stored
    assert (workload.queue_name, workload.max_execution_seconds) == ("other", 60)
    assert workload.priority_class == ("WorkloadPriorityClass", "urgent")


@pytest.mark.parametrize(
    ("queue", "labels", "sentence"),
    [
        (
            "gpus",
            {"kueue.x-k8s.io/max-exec-time-seconds": "1h"},
            "seconds is '1h': it must be a number of seconds above",
        ),
        ("Team_A", {}, "queue-name is 'Team_A': it must be the name of a LocalQueue"),
    ],
)
def test_a_label_that_kueue_would_refuse_is_one_sentence(queue: str, labels: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidJob, match=sentence):
        job_workload(queued_job(queue, labels), 0)


def test_the_time_in_the_queue_counts_for_no_deadline() -> None:
    cluster = QueuedCluster(queued_job(runPolicy={"activeDeadlineSeconds": 60}))
    cluster.reconcile()
    cluster.reconcile(after=1000)
    assert phase_of(cluster) is Phase.QUEUED
    cluster.admit()
    cluster.run_to_running()
    cluster.wait(50)
    cluster.evict()
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile(after=1000)
    assert (cluster.status.phase, cluster.status.active_seconds) == (Phase.QUEUED, 50)
    cluster.admit()
    cluster.run_to_running()
    assert phase_of(cluster) is Phase.RUNNING
    cluster.reconcile(after=20)
    assert phase_of(cluster) is Phase.TERMINATING


def test_a_job_says_at_once_that_its_queue_has_no_room_and_not_that_it_enters_it() -> None:
    cluster = QueuedCluster(queued_job())
    new = cluster.status
    cluster.reconcile()
    entering = cluster.status
    cluster.make_wait()
    cluster.reconcile()
    assert [urgency(new, status) for status in (entering, cluster.status)] == [Urgency.START, Urgency.NOW]


# ---- the pods of an admission ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("as_worker", "is_grouped", "offset"),
    [(False, False, None), (True, False, "1"), (False, True, "-1"), (True, True, None)],
)
def test_pods_of_a_topology_wait_for_the_node_of_their_rank(
    *, as_worker: bool, is_grouped: bool, offset: str | None
) -> None:
    group = {"kueue.x-k8s.io/podset-group-name": "all"} if is_grouped else {}
    template = {"metadata": {"annotations": {TOPOLOGY: "rack", **group}}}
    job = queued_job(worker={"replicas": 3, "gpus": 0, "template": template}, launcher={"asWorker": as_worker})
    cluster = QueuedCluster(job)
    cluster.reconcile()
    sets = {one["name"]: one for one in job_workload(cluster.job, 0)["spec"]["podSets"]}
    request = sets["worker"]["topologyRequest"]
    assert (request["required"], request["podIndexLabel"]) == ("rack", "horovodjob.dev/replica-index")
    assert request.get("podSetGroupName") == ("all" if is_grouped else None)
    assert "topologyRequest" not in sets["launcher"]
    assert sets["worker"]["count"] == (2 if as_worker else 3)
    cluster.admit()
    assert cluster.raw is not None
    for assignment in cluster.raw["status"]["admission"]["podSetAssignments"]:
        assignment["topologyAssignment"] = {"levels": ["rack"]}
    assert cluster.workload
    pod = Admission(cluster.workload, {"spot": {}}).apply(worker_pod(job, 1, 1, ""), Role.WORKER)
    assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    annotations = pod["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/workload"] == workload_name(job)
    assert annotations.get("kueue.x-k8s.io/pod-index-offset") == offset


def test_a_workload_contains_what_scheduling_depends_on_and_no_programs(waiting: QueuedCluster) -> None:
    job = queued_job(env=[{"name": "PASSWORD", "value": "secret"}], nodeSelector={"disk": "ssd"})
    body = job_workload(job, 0)
    assert "secret" not in str(body)
    worker = body["spec"]["podSets"][1]["template"]["spec"]
    assert worker["nodeSelector"] == {"disk": "ssd"}
    assert worker["volumes"] == []
    assert len(workload_name(waiting.job)) <= 63


def test_pods_with_the_label_of_a_queue_are_refused(waiting: QueuedCluster) -> None:
    template = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}}
    with pytest.raises(InvalidJob, match="on the HorovodJob and not on its pods"):
        worker_pod(queued_job(worker={"template": template, "gpus": 0}), 0, 1, "")


# ---- losing the quota ----------------------------------------------------------------------------------------------


def test_the_time_before_an_eviction_counts_for_the_maximum_execution_time(running: QueuedCluster) -> None:
    assert running.raw is not None
    running.raw["status"]["accumulatedPastExecutionTimeSeconds"] = 5
    running.wait(60)
    running.evict("Preempted")
    running.reconcile()
    running.remove_terminating_pods()
    running.reconcile()
    assert running.raw["status"]["accumulatedPastExecutionTimeSeconds"] >= 65


def hold(cluster: QueuedCluster, reason: str = "Deactivated") -> None:
    """An administrator holds the job, and Kueue evicts it; `reason` is what the job then says."""
    assert cluster.raw is not None
    cluster.raw["spec"]["active"] = False
    cluster.evict("Deactivated", "The workload is deactivated")
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert cluster.reason == reason


def remove_and_add_the_label(cluster: QueuedCluster) -> None:
    cluster.label(queue_name=None)
    cluster.reconcile()
    assert (cluster.reason, cluster.pods) == ("Deactivated", {})
    cluster.label(queue_name="gpus")


def be_refused(cluster: QueuedCluster) -> None:
    cluster.refusal = Refusal(Reason.INVALID_SPEC, "a policy forbids it", cluster.now)
    cluster.reconcile()
    cluster.refusal = None


@pytest.mark.parametrize("attempt", [remove_and_add_the_label, be_refused])
def test_only_an_administrator_ends_a_hold(running: QueuedCluster, attempt: Callable[[QueuedCluster], None]) -> None:
    hold(running)
    attempt(running)
    running.reconcile()
    workload = running.stored
    assert (workload.is_active, workload.has_reservation, running.pods) == (False, False, {})
    assert (phase_of(running), running.reason) == (Phase.QUEUED, "Deactivated")


def test_a_hold_outlives_the_delay_after_a_scheduling_timeout(late: QueuedCluster) -> None:
    assert late.reason == "SchedulingTimeout"
    hold(late, reason="SchedulingTimeout")
    late.reconcile(after=60)
    workload = late.stored
    assert (workload.is_active, workload.has_reservation, late.pods) == (False, False, {})
    assert late.reason == "Deactivated"


def test_a_job_that_is_held_while_it_is_suspended_keeps_no_quota(running: QueuedCluster) -> None:
    running.edit_run_policy(suspend=True)
    running.reconcile()
    assert running.raw is not None
    running.raw["spec"]["active"] = False
    running.evict("Deactivated", "The workload is deactivated")
    running.remove_terminating_pods()
    running.reconcile()
    workload = running.workload
    assert workload is not None
    assert not workload.has_reservation


def test_a_held_job_without_its_label_leaves_its_queue_when_it_is_active_again(running: QueuedCluster) -> None:
    hold(running)
    running.label(queue_name=None)
    running.reconcile()
    assert running.raw is not None
    running.raw["spec"]["active"] = True
    running.reconcile()
    assert running.raw is None
    assert len(running.pods) == 3


def test_a_job_outlives_kueue_and_gets_no_further_pods(running: QueuedCluster) -> None:
    running.raw, running.has_kueue = None, False
    running.reconcile()
    assert phase_of(running) is Phase.RUNNING
    assert "has no Workload in queue gpus any more" in running.message
    running.end_container("cifar-launcher", 1)
    running.reconcile(after=30)
    running.remove_terminating_pods()
    running.reconcile(after=400)
    assert "cifar-launcher" not in running.pods


def test_a_job_that_leaves_its_queue_runs_without_it(running: QueuedCluster) -> None:
    running.label(queue_name=None)
    running.reconcile()
    assert running.raw is None
    assert (running.status.phase, running.status.queue) == (Phase.RUNNING, None)


def test_a_deleted_job_that_a_finalizer_keeps_has_its_quota_until_its_last_pod_has_ended(
    running: QueuedCluster,
) -> None:
    deleted = running.job.metadata.model_copy(update={"deletion_timestamp": running.now})
    running.job = running.job.model_copy(update={"metadata": deleted})
    assert not workload_plan(running.context).delete
    assert plan_for_deleted_job(running.context) == Plan()
    running.evict()
    assert plan_for_deleted_job(running.context).delete_all_pods
    assert not workload_plan(running.context).delete
    running.pods.clear()
    assert workload_plan(running.context).delete
    running.set_conditions(Finished=(True, "Succeeded", ""))
    assert not workload_plan(running.context).delete, "its quota is free"


def test_a_running_job_that_gets_another_queue_keeps_its_quota_and_says_so(running: QueuedCluster) -> None:
    running.label(queue_name="other")
    running.reconcile()
    assert phase_of(running) is Phase.RUNNING
    assert "keeps its quota of queue gpus; queue other applies when it waits again" in running.message
    running.evict()
    running.reconcile()
    running.remove_terminating_pods()
    running.reconcile()
    assert running.stored.queue_name == "other"


# ---- giving quota back ---------------------------------------------------------------------------------------------


def test_an_elastic_job_that_shrinks_gives_the_quota_back_when_its_workers_are_gone() -> None:
    cluster = QueuedCluster(queued_job(worker={"replicas": 3, "gpus": 0}, elastic={"minReplicas": 1}))
    cluster.reconcile()
    cluster.admit()
    cluster.run_to_running()
    cluster.scale(1)
    cluster.reconcile()
    assert cluster.stored.reclaimable == {}
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert cluster.stored.reclaimable == {"worker": 2}
    cluster.scale(3)
    cluster.reconcile()
    assert "the queue has admitted 1 of 3 workers" in cluster.message


def test_a_job_whose_pods_had_no_nodes_in_time_is_in_no_queue_until_its_next_attempt(late: QueuedCluster) -> None:
    assert late.raw is not None
    late.remove_terminating_pods()
    late.reconcile()
    assert late.raw is None
    assert late.reason == "SchedulingTimeout"
    late.reconcile(after=60)
    assert late.workload is not None
    assert (late.reason, late.status.preemptions) == ("Queued", 0)


def test_a_job_whose_pods_are_refused_is_in_no_queue_until_they_are_accepted(waiting: QueuedCluster) -> None:
    waiting.admit()
    waiting.refusal = Refusal(Reason.INVALID_SPEC, "a policy forbids it", waiting.now)
    waiting.reconcile()
    assert waiting.raw is None
    assert waiting.message == "a policy forbids it"
    waiting.refusal = None
    waiting.reconcile()
    assert waiting.workload is not None


# ---- other clusters --------------------------------------------------------------------------------------------------


def test_a_job_that_multikueue_dispatches_has_a_workload_that_is_cleared_and_never_finished_here() -> None:
    cluster = QueuedCluster(queued_job(managedBy="kueue.x-k8s.io/multikueue"))
    assert workload_plan(cluster.context).create
    cluster.apply_workload_plan()
    cluster.admit()
    plan = workload_plan(cluster.context)
    assert (plan.create, plan.request, plan.delete, plan.status) == (False, False, False, None)
    cluster.evict()
    cluster.apply_workload_plan()
    reserved = cluster.stored.conditions["QuotaReserved"]
    assert (reserved.is_true, reserved.reason) == (False, "Pending")
    cluster.edit_run_policy(suspend=True)
    cluster.apply_workload_plan()
    assert cluster.raw is None


def test_the_prebuilt_workload_of_multikueue_is_neither_changed_nor_deleted(waiting: QueuedCluster) -> None:
    assert waiting.raw is not None
    del waiting.raw["metadata"]["labels"]["horovodjob.dev/spec-hash"]
    waiting.label(queue_name="other")
    waiting.reconcile()
    assert waiting.stored.queue_name == "gpus"
    waiting.admit()
    waiting.run_to_running()
    assert phase_of(waiting) is Phase.RUNNING
    waiting.edit_run_policy(suspend=True)
    waiting.reconcile()
    waiting.remove_terminating_pods()
    waiting.reconcile()
    assert waiting.raw is not None
