"""Queues of Kueue: a job has pods while its Workload is admitted, and gives its quota back with its last pod.

Kueue is installed by the first test, and removed by the last one.
"""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from horovodjob_operator.errors import Conflict
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.workload import owned_workload
from integration.faults.operator_kills import Lanes, parallel_lanes
from integration.faults.queue_kills import differences, leave_while_the_operator_is_dead, prepare
from integration.scenarios import run_next_attempt, suspend
from support.api_client import JOBS, ROOT, Api, ApiError, Object, job, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job, submit
from support.kueue.controller import Kueue
from support.kueue.queues import (
    API,
    LABEL,
    PRIORITY_LABEL,
    REQUESTS,
    Queue,
    QueuedJob,
    create_admission_check,
    has_reservation,
    recorded_violations,
    wait_for_balance,
)
from support.operator_process import Operator

KUEUE = "kueue.x-k8s.io"


def finish(job: Job) -> None:
    """Carries the job to its end."""
    job.advance_to("Succeeded")


# ---- waiting and starting ------------------------------------------------------------------------------------


def test_a_job_waits_until_kueue_is_installed(
    request: pytest.FixtureRequest, api: Api, namespace: str, operator: Operator
) -> None:
    body = job(launcher=REQUESTS["launcher"], worker={"replicas": 2, "gpus": 0, **REQUESTS["worker"]})
    body["metadata"]["labels"] = {LABEL: "gpus"}
    made = api.create(JOBS.format(namespace), body)
    waiting = QueuedJob(api, namespace, "train", made["metadata"]["uid"])
    assert "Kueue" in waiting.wait_queued("QueueUnavailable")
    request.getfixturevalue("kueue")
    Queue(api, namespace, 2)
    finish(waiting)


def test_a_job_waits_without_pods_and_starts_with_what_its_queue_assigns_when_there_is_room(queue: Queue) -> None:
    first = queue.submit("first", nodeSelector={"disk": "ssd"}).advance_to("Running")
    second = queue.submit("second")
    message = second.wait_queued("Pending")
    assert message == second.workload_condition("QuotaReserved")["message"]
    assert "insufficient unused quota for cpu" in message
    wait_for("its position", lambda: second.status["queue"].get("position") == 1)

    for role, pod in first.pods().items():
        assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "flavor": "spot"}
        assert {"key": "spot", "operator": "Exists"} in pod["spec"]["tolerations"]
        assert pod["metadata"]["labels"][f"{KUEUE}/podset"] == role.partition("-")[0]
        assert LABEL not in pod["metadata"]["labels"]
    found = first.status["queue"]
    flavors = [f"{queue.namespace}-spot"]
    assert (found["name"], found["clusterQueue"], found["flavors"]) == ("gpus", queue.namespace, flavors)
    assert "position" not in found
    assert first.get()["spec"]["nodeSelector"] == {"disk": "ssd"}
    owner, labels = first.workload["metadata"]["ownerReferences"][0], first.workload["metadata"]["labels"]
    assert (owner["uid"], owner["controller"], labels[f"{KUEUE}/job-uid"]) == (first.uid, True, first.uid)

    first.end("launcher", 0)
    first.wait("Succeeded")
    assert first.wait_for_workload("Finished")["reason"] == "Succeeded"
    finish(second)
    assert second.wait_for_workload("Finished")["reason"] == "Succeeded"
    assert second.get()["metadata"]["generation"] == 1
    assert second.events()["Queued"] <= 1
    wait_for_balance(queue)


def test_a_deleted_job_that_a_finalizer_keeps_gives_its_quota_back_with_its_last_pod(queue: Queue, api: Api) -> None:
    def delete(job: QueuedJob) -> QueuedJob:
        api.patch(job.path, {"metadata": {"finalizers": ["example.com/export"]}})
        api.delete(job.path)
        return job

    next_job = queue.submit("job-0")
    kept = []

    def evict(job: QueuedJob) -> None:
        api.patch(job.workload_path(), {"spec": {"active": False}})

    ends: list[Callable[[QueuedJob], object]] = [lambda job: job.end("launcher", 0), lambda job: job.end("launcher", 1)]
    for number, end in enumerate([*ends, evict], 1):
        kept.append(delete(next_job.advance_to("Running")))
        next_job = queue.submit(f"job-{number}")
        next_job.wait_queued("Pending")  # the pods of the deleted job use its quota
        end(kept[-1])
        next_job.wait_for_pods()
    assert not kept[-1].pods(), "an evicted job has no pods"
    last = queue.submit("last")
    last.wait_queued("Pending")
    kept.append(delete(last))
    wait_for("the Workload of the job without pods to be deleted", lambda: not last.workload)
    finish(next_job)
    for each in kept:
        api.patch(each.path, {"metadata": {"finalizers": None}})


def test_the_example_waits_in_its_queue_until_the_quota_is_free(queue: Queue) -> None:
    example = yaml.safe_load((ROOT / "manifests" / "examples" / "queue.yaml").read_text())
    room = [{"name": "cpu", "nominalQuota": "500m"}, {"name": "memory", "nominalQuota": "1Gi"}]
    flavors = [{"name": f"{queue.namespace}-spot", "resources": room}]
    queue.change(resourceGroups=[{"coveredResources": ["cpu", "memory"], "flavors": flavors}])
    first = queue.create(example | {"metadata": example["metadata"] | {"name": "first"}}).advance_to("Running")
    second = queue.create(example | {"metadata": example["metadata"] | {"name": "second"}})
    assert "insufficient unused quota for cpu" in second.wait_queued("Pending")
    finish(first)
    finish(second)


def test_a_job_that_cannot_be_admitted_says_so_and_starts_in_another_queue_of_any_version(
    queue: Queue, api: Api
) -> None:
    assert "maximum capacity (500m)" in queue.submit("too-large", workers=9).wait_queued("Pending")
    job = queue.submit(labels={LABEL: "missing"})
    assert "missing" in job.wait_queued("Inadmissible")
    other = queue.submit("other", labels={LABEL: "later"})
    other.wait_queued("Inadmissible")
    job.relabel(queue="gpus")
    job.wait_for_pods()
    assert job.workload["spec"]["queueName"] == "gpus"
    finish(job)
    older = f"/apis/{KUEUE}/v1beta1/namespaces/{queue.namespace}/localqueues"
    body = {"apiVersion": f"{KUEUE}/v1beta1", "kind": "LocalQueue", "metadata": {"name": "later"}}
    api.create(older, {**body, "spec": {"clusterQueue": queue.cluster_queue}})
    finish(other)


def test_an_urgent_job_takes_the_quota_of_another_one_which_resumes_afterwards(queue: Queue, api: Api) -> None:
    running = queue.submit("running", runPolicy={"activeDeadlineSeconds": 3600}).advance_to("Running")
    larger = queue.submit("larger", 9)
    larger.wait_queued("Pending")
    larger.suspend(True, worker={"replicas": 1})
    larger.wait("Suspended")
    larger.suspend(False)
    larger.wait_queued("Pending")
    assert {one["name"]: one["count"] for one in larger.workload["spec"]["podSets"]} == {"launcher": 1, "worker": 1}
    larger.relabel(priority="urgent")
    assert "Preempted to accommodate a workload" in running.wait_queued("Preempted")
    assert larger.workload["spec"]["priorityClassRef"]["name"] == "urgent"
    finish(larger)
    running.advance_to("Running")
    status = running.status
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 1)

    name = f"{queue.namespace}-high"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", kind)
    job = queue.submit("with-class", priorityClassName=name)
    wait_for("the priority of its pods", lambda: job.workload.get("spec", {}).get("priority") == 7)
    api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    running.wait_queued("Preempted")


def test_an_admission_check_delays_the_job_and_changes_its_pods(queue: Queue, api: Api) -> None:
    create_admission_check(api, queue.namespace)
    queue.change(admissionChecksStrategy={"admissionChecks": [{"name": queue.namespace}]})
    job = queue.submit()
    job.set_check(queue.namespace, "Pending", "2 of 3 nodes are here")
    wait_for("the sentence", lambda: "2 of 3 nodes are here" in job.condition("Queued").get("message", ""))
    assert job.pods() == {}
    update = {
        "labels": {"from": "check"},
        "annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "train"},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "provisioned", "operator": "Exists"}],
    }
    job.set_check(queue.namespace, "Ready", worker=update)
    pods = job.wait_for_pods()
    metadata, spec = pods["worker-1"]["metadata"], pods["worker-1"]["spec"]
    assert (metadata["labels"]["from"], spec["nodeSelector"]) == ("check", {"flavor": "spot", "zone": "a"})
    assert metadata["annotations"].items() >= update["annotations"].items()  # type: ignore[attr-defined]
    assert {"key": "provisioned", "operator": "Exists"} in spec["tolerations"]
    assert "from" not in pods["launcher"]["metadata"]["labels"]
    job.advance_to("Running")
    job.set_check(queue.namespace, "Retry", "the nodes are gone")
    assert "admission check" in job.wait_queued("AdmissionCheck")
    job.wait_for_workload("Evicted", status="False")
    job.set_check(queue.namespace, "Ready")
    finish(job)


def test_pods_of_a_topology_wait_for_their_node_and_end_with_it(queue: Queue) -> None:
    queue.use_topology()
    annotations = {f"{KUEUE}/podset-required-topology": "kubernetes.io/hostname"}
    job = queue.submit(worker={"template": {"metadata": {"annotations": annotations}}})
    pods = job.wait_for_pods()
    request = next(one["topologyRequest"] for one in job.workload["spec"]["podSets"] if one["name"] == "worker")
    assert (request["required"], request["podIndexLabel"]) == (
        "kubernetes.io/hostname",
        "horovodjob.dev/replica-index",
    )
    assert pods["worker-0"]["metadata"]["annotations"][f"{KUEUE}/workload"] == job.workload["metadata"]["name"]
    wait_for("the gates to be removed", lambda: not has_gates(job.pods()))
    assert job.pods()["worker-0"]["spec"]["nodeSelector"]["kubernetes.io/hostname"], "Kueue has chosen no node"
    job.advance_to("Running")
    queue.remove_node()
    job.wait_queued("NodeFailures")
    queue.use_topology()
    wait_for("pods without gates", lambda: len(job.pods()) == 3 and not has_gates(job.pods()))
    finish(job)


def has_gates(pods: dict[str, Object]) -> bool:
    """Whether a pod waits for its node."""
    return any(pod["spec"].get("schedulingGates") for pod in pods.values())


# ---- losing the quota ----------------------------------------------------------------------------------------


def test_the_maximum_execution_time_of_the_queue_ends_the_job_until_it_is_active(queue: Queue, api: Api) -> None:
    job = queue.submit(labels={f"{KUEUE}/max-exec-time-seconds": "2"})
    job.wait_for_pods()
    assert "maximum execution time" in job.wait_queued("DeactivatedDueToMaximumExecutionTimeExceeded")
    assert job.workload["spec"]["active"] is False
    wait_for("the reservation to be cleared", lambda: not has_reservation(job.workload))
    api.patch(job.workload_path(), {"spec": {"active": True}})
    job.wait_for_pods()


def test_a_deleted_workload_is_replaced_with_its_pods_and_a_failed_job_gives_its_quota_back(
    queue: Queue, api: Api
) -> None:
    job = queue.submit(runPolicy={"backoffLimit": 0}).advance_to("Running")
    before = job.uids()
    api.delete(job.workload_path())
    wait_for("a new Workload", lambda: job.workload)
    wait_for("the pods of before to be deleted", lambda: not before.items() & job.uids().items())
    job.advance_to("Running")
    assert job.status["restarts"] == 0
    job.end("launcher", 1, message="boom")
    job.wait("Failed")
    assert job.wait_for_workload("Finished")["reason"] == "Failed"
    finish(queue.submit("next"))


def test_workers_that_an_elastic_job_gives_up_let_another_job_start(queue: Queue) -> None:
    queue.resize(6)
    job = queue.submit(workers=5, elastic={"minReplicas": 1, "maxReplicas": 6}).advance_to("Running")
    waiting = queue.submit("waiting", 1)
    waiting.wait_queued("Pending")
    job.api.patch(job.path, {"spec": {"worker": {"replicas": 1}}})
    waiting.advance_to("Running")
    waiting.end("launcher", 0)
    waiting.wait_for_workload("Finished")
    job.api.patch(job.path, {"spec": {"worker": {"replicas": 6}}})
    wait_for("the remedy", lambda: "suspend the job and resume it" in job.condition("Ready")["message"])
    assert "1 of 6 workers" in job.condition("Ready")["message"]
    assert (job.phase, set(job.pods())) == ("Running", {"launcher", "worker-0"})
    path, pod_sets = job.workload_path(), job.workload["spec"]["podSets"]
    larger = [one | {"count": one["count"] + (one["name"] == "worker")} for one in pod_sets]
    # A Kueue that accepts one of these would let the job grow without the remedy.
    for part, change, refusal in (
        ("/status", {"status": {"reclaimablePods": [{"name": "worker", "count": 0}]}}, "cannot be less"),
        ("/status", {"status": {"reclaimablePods": None}}, "cannot be removed"),
        ("", {"spec": {"podSets": larger}}, "immutable"),
    ):
        with pytest.raises(ApiError, match=refusal):
            job.api.patch(path + part, change)
    pod = f"{job.pods_path}/{job.pods()['worker-0']['metadata']['name']}"
    job.api.patch(pod, {"metadata": {"finalizers": ["example.com/no-kubelet"]}})
    job.suspend()
    job.wait("Suspended")
    job.suspend(False)
    wait_for("the sentence", lambda: "gives its quota back with its last pod" in job.condition("Ready")["message"])
    job.api.patch(pod, {"metadata": {"finalizers": None}})
    wait_for("all workers", lambda: len(job.pods()) == 7)


# ---- Kueue comes and goes ------------------------------------------------------------------------------------


def test_jobs_end_restart_resume_and_are_deleted_while_the_webhook_of_their_workloads_is_down(
    queue: Queue, operator: Operator, kueue: Kueue
) -> None:
    queue.resize(2, 2, 2, 2, 2)
    names = ("ended", "failing", "deleted", "resumed", "held")
    ended, failing, deleted, resumed, held = (queue.submit(name).advance_to("Running") for name in names)
    for each in (ended, failing):
        each.wait_for_workload("PodsReady")
    kueue.kill()
    with kueue.without_webhooks("workload"):
        hold = {"spec": {"active": False}}
        wait_for("the Workload to be held", lambda: is_accepted(held, hold))
    wait_for("the webhook to be called", lambda: not is_accepted(held, hold))
    waiting, never = queue.submit("waiting"), queue.submit("never")
    never.wait_queued("CreationFailed")
    for each in (deleted, never):
        delete(each)
    for each in (resumed, held):
        suspend(each)
        each.suspend(False)
    assert "webhook" in resumed.wait_queued("CreationFailed")
    assert "spec.active" in held.wait_queued("Deactivated")
    ended.end("launcher", 0)
    failing.end("launcher", 1, message="boom")
    assert ended.wait("Succeeded")["completionTime"]
    message = ended.wait_for_condition("QuotaReleased", status="False")
    assert "keeps trying" in message
    assert "webhook" in message
    wait_for("the workers to end", lambda: set(ended.pods()) == {"launcher"})
    failing.skip_backoff()
    assert "webhook" in failing.wait_for_condition("Ready", status="False", reason="CreationFailed")
    with kueue.without_webhooks("pod"):  # as where Kueue's integration for pods is off
        run_next_attempt(failing)
        operator.kill()
        operator.start()
        failing.end("launcher", 1, message="boom")
        failing.skip_backoff()
        run_next_attempt(failing)
        assert "webhook" in waiting.wait_queued("CreationFailed")
        kueue.start(**kueue.settings)
    ended.wait_for_workload("Finished")
    wait_for("the condition to go", lambda: not ended.condition("QuotaReleased"))
    status = failing.status
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (3, 2, 0)
    failing.wait_for_workload("PodsReady")
    failing.end("launcher", 0)
    assert failing.wait_for_workload("Finished")["reason"] == "Succeeded"
    for each in (waiting, resumed):
        finish(each)
    wait_for("the reservation to be cleared", lambda: not has_reservation(held.workload))
    assert "spec.active" in held.wait_queued("Deactivated")
    queue.api.patch(held.workload_path(), {"spec": {"active": True}})
    finish(held)
    wait_for_balance(queue)


def test_no_status_waits_for_a_webhook_that_does_not_answer(queue: Queue, kueue: Kueue, recorder: Recorder) -> None:
    queue.resize(2, 2)
    job = queue.submit().advance_to("Running")
    job.wait_for_workload("PodsReady")
    os.kill(kueue.pid, signal.SIGSTOP)
    try:
        job.end("launcher", 0)
        job.wait("Succeeded")
        wait_for("the workers to end", lambda: set(job.pods()) == {"launcher"})
        job.wait_for_condition("QuotaReleased", status="False")
        waiting = queue.submit("waiting")
        waiting.wait_queued("CreationFailed")
    finally:
        os.kill(kueue.pid, signal.SIGCONT)
    recorder.catch_up(queue.namespace)
    # The API server waits for longer, and then reports an error.
    assert "has not answered" in first_message(recorder, job, "QueueUnavailable")
    assert "has not answered" in first_message(recorder, waiting, "CreationFailed")
    job.wait_for_workload("Finished")
    wait_for("the condition to go", lambda: not job.condition("QuotaReleased"))
    finish(waiting)


def first_message(recorder: Recorder, job: Job, reason: str) -> str:
    """The message with which a status first had this reason."""
    statuses = (version.get("status", {}) for version in recorder.versions[job.uid])
    conditions = (one for status in statuses for one in status.get("conditions", ()))
    return next(str(one["message"]) for one in conditions if one["reason"] == reason)


def is_accepted(job: QueuedJob, change: Object) -> bool:
    """Whether the API server accepts a change of the Workload."""
    try:
        job.api.patch(job.workload_path(), change)
    except ApiError:
        return False
    return True


def delete(job: QueuedJob) -> None:
    """Deletes the job; its pods and its Workload go with it."""
    job.delete()
    wait_for(f"{job.name} to be gone", lambda: job.api.find(job.path) is None)
    wait_for("its pods to be gone", lambda: job.pods() == {})
    wait_for("its Workload to be gone", lambda: job.workload == {})


async def test_only_an_administrator_lifts_a_hold(queue: Queue, api: Api, connection: ApiClient) -> None:
    queue.add("other")
    job = queue.submit().advance_to("Running")
    before = owned_workload(job.workload)
    assert before
    api.patch(job.workload_path(), {"spec": {"active": False}})
    with pytest.raises(Conflict):  # The operator wanted to delete it before it saw the hold.
        await KueueApi(connection).delete(queue.namespace, before.workload)
    job.wait_queued("Deactivated")
    wait_for("the sentence", lambda: "spec.active" in job.condition("Queued")["message"])
    wait_for("the reservation to be cleared", lambda: not has_reservation(job.workload))
    job.suspend()
    job.wait("Suspended")
    job.suspend(False)
    job.relabel(queue="other")
    wait_for("the other queue", lambda: job.workload["spec"]["queueName"] == "other")
    job.wait_queued("Deactivated")
    assert (job.workload["spec"]["active"], job.pods()) == (False, {})
    api.patch(job.workload_path(), {"spec": {"active": True}})
    job.advance_to("Running")


def test_a_job_without_a_queue_sends_no_requests_for_workloads(
    api: Api, namespace: str, operator: Operator, control_plane: OperatorControlPlane, queue: Queue
) -> None:
    made = api.create(JOBS.format(namespace), job())
    finish(Job(api, namespace, "train", made["metadata"]["uid"]))
    assert [request for request in control_plane.requests(namespace) if "workloads" in request] == []


@pytest.fixture
def lanes(api: Api, kueue: Kueue, operator_access: Path, operator_process: Operator, tmp_path: Path) -> Iterator[Lanes]:
    with parallel_lanes(api, operator_access, operator_process, tmp_path, partial(prepare, api=api)) as started:
        yield started


def test_a_job_keeps_to_its_quota_when_the_operator_is_killed_before_and_after_each_write(
    lanes: Lanes, api: Api
) -> None:
    with recorded_violations(api) as violations:
        found = differences(lanes)
        leave_while_the_operator_is_dead(lanes)
    if found or violations:
        pytest.fail("\n".join([*found, *violations]), pytrace=False)


# ---- other configurations, and the end of Kueue --------------------------------------------------------------


def test_pods_that_kueue_queues_one_by_one_have_a_remedy_and_those_that_are_not_ready_in_time_wait_again(
    queue: Queue, kueue: Kueue
) -> None:
    settings = kueue.settings | {"manageJobsWithoutQueueName": True}
    queue.add("default")
    kueue.restart()  # with its default configuration
    job, alone = queue.submit(), submit(queue.api, queue.namespace, "alone")
    for refused in (job, alone):
        message = refused.wait_for_condition("Ready", status="False", reason="AdmissionDenied")
        assert "list HorovodJob.v1beta1.horovodjob.dev in integrations.externalFrameworks" in message
        assert refused.pods() == {}
    queue.api.delete(default := f"{API}/namespaces/{queue.namespace}/localqueues/default")
    wait_for("the default queue to be gone", lambda: queue.api.find(default) is None)

    def wait_for_pods_ready(timeout: str) -> None:
        strategy = {"backoffBaseSeconds": 1}
        limits = {"timeout": timeout, "recoveryTimeout": "10m", "requeuingStrategy": strategy}
        kueue.restart(**settings | {"waitForPodsReady": limits})

    wait_for_pods_ready("2s")
    job.wait_for_pods()
    job.wait_queued("PodsReadyTimeout")
    wait_for_pods_ready("10m")
    finish(alone)
    job.advance_to("Running")
    assert job.wait_for_workload("PodsReady")["reason"] == "Started"
    job.end("launcher", 1)
    job.wait("Restarting")
    job.wait_for_workload("PodsReady", status="False", reason="WaitForRecovery")
    urgent = queue.submit("urgent", labels={PRIORITY_LABEL: "urgent"})
    job.wait_queued("Preempted")
    finish(urgent)
    job.wait_for_workload("PodsReady", status="False", reason="WaitForStart")
    job.advance_to("Running", since="Queued")
    job.wait_for_workload("PodsReady")


def test_a_job_outlives_kueue_and_another_one_waits_for_it(queue: Queue, kueue: Kueue, operator: Operator) -> None:
    job = queue.submit("running").advance_to("Running")
    kueue.uninstall()
    assert "Kueue" in queue.submit("waiting").wait_queued("QueueUnavailable")
    operator.kill()
    operator.start()
    job.end("launcher", 0)
    job.wait("Succeeded")
