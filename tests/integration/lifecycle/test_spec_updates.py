"""Spec updates of a job: suspension, resumption, deadlines, termination, TTL and deletion."""

from collections.abc import Callable
from functools import partial

import pytest

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.invariants import without_generation
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting"])
def test_a_job_can_be_suspended_in_any_phase_and_runs_again(submit_job: Submit, phase: str) -> None:
    job = submit_job().advance_to(phase)
    job.suspend()
    status = job.wait("Suspended")
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    assert "startTime" not in status
    job.suspend(False)
    job.advance_to("Succeeded")
    wait_for("the last event", lambda: job.events()["Succeeded"])
    assert (job.events()["Suspended"], job.events()["Resumed"]) == (1, 1)


def is_observed(job: Job) -> bool:
    """Whether the status is about the newest spec."""
    found = job.get()
    return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])


def test_a_change_of_the_spec_while_the_status_is_written_is_not_lost(submit_job: Submit) -> None:
    jobs = [submit_job(f"hasty-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(5)]
    for suspend in (True, False) * 5:
        for job in jobs:
            job.suspend(suspend)
    for job in jobs:
        wait_for("the newest spec", partial(is_observed, job))
        job.wait("Queued")
        job.wait_for_pods()


def test_a_job_created_suspended_creates_no_objects(submit_job: Submit, control_plane: OperatorControlPlane) -> None:
    job = submit_job(runPolicy={"suspend": True})
    job.wait("Suspended")
    wait_for("the event", lambda: job.events()["Suspended"])
    assert control_plane.calls(job.namespace) == {"patch horovodjobs/status": 1, "create events": 1}


def test_a_suspended_job_can_resume_with_another_size_and_image(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    job.suspend(True, worker={"replicas": 3})
    job.wait("Suspended")
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    job.suspend(True, image="trainer:2")
    for _ in range(2):
        job.suspend(False)
    job.schedule()
    job.run()
    job.wait("Running")
    assert len(job.hosts.splitlines()) == 3
    assert {pod["spec"]["containers"][0]["image"] for pod in job.pods().values()} == {"trainer:2"}
    assert (job.events()["Suspended"], job.events()["Resumed"]) == (1, 1)


def test_a_job_changed_while_the_operator_is_down_gets_new_pods(submit_job: Submit, operator: Operator) -> None:
    job = submit_job().advance_to("Running")
    old = set(job.uids().values())
    operator.kill()
    job.suspend(True, image="trainer:2")
    job.suspend(False)
    operator.start()
    wait_for("the new pods", lambda: len(job.pods()) == 3 and old.isdisjoint(job.uids().values()))
    job.advance_to("Running", since="Queued")
    assert {pod["spec"]["containers"][0]["image"] for pod in job.pods().values()} == {"trainer:2"}
    assert (job.status["attempt"], job.status["restarts"], job.status["preemptions"]) == (2, 0, 0)
    assert max(job.events()["Suspended"], job.events()["Resumed"]) <= 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_network_policy_and_a_service_are_deleted_when_the_spec_no_longer_requires_them(
    submit_job: Submit, api: Api, operator: Operator, restarted: bool
) -> None:
    job = submit_job(network={"service": True}).advance_to("Running")
    paths = optional_objects(job)
    assert all(api.find(path) for path in paths)
    job.suspend(True, network={"isolate": False, "service": False})
    job.wait("Suspended")
    if restarted:
        operator.kill()
        operator.start()
    job.suspend(False)
    job.advance_to("Running")
    assert [path for path in paths if api.find(path)] == []


def test_a_deleted_network_policy_and_a_deleted_service_are_recreated(
    submit_job: Submit, api: Api, operator: Operator
) -> None:
    job = submit_job(network={"service": True}).advance_to("Running")
    pods, paths = job.uids(), optional_objects(job)
    for path in paths:
        api.delete(path)
    operator.kill()
    operator.start()
    wait_for("both to be recreated", lambda: all(api.find(path) for path in paths))
    assert (job.phase, job.uids()) == ("Running", pods)
    job.advance_to("Succeeded", since="Running")


def optional_objects(job: Job) -> tuple[str, str]:
    """Paths of the NetworkPolicy and the Service of a job."""
    namespace = f"namespaces/{job.namespace}"
    return (
        f"/apis/networking.k8s.io/v1/{namespace}/networkpolicies/{job.name}",
        f"/api/v1/{namespace}/services/{job.name}",
    )


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running"])
def test_a_deadline_ends_the_job_in_any_phase(submit_job: Submit, phase: str) -> None:
    job = submit_job(runPolicy={"activeDeadlineSeconds": 3600}).advance_to(phase)
    job.api.patch(f"{job.path}/status", {"status": {"startTime": "2020-01-01T00:00:00Z"}})
    job.wait("Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert "runPolicy.activeDeadlineSeconds: 3600 s" in job.condition("Failed")["message"]
    wait_for("the workers to be deleted", lambda: set(job.pods()) <= {"launcher"})


def test_a_deadline_takes_effect_without_any_event(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"activeDeadlineSeconds": 1})
    job.wait("Failed")


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting"])
def test_a_job_can_be_terminated_in_any_phase(submit_job: Submit, phase: str) -> None:
    job = submit_job().advance_to(phase)
    job.edit_policy(terminate=True)
    status = job.wait("Failed")
    assert (job.condition("Failed")["reason"], status["executionState"]) == ("Terminated", "failed")
    assert job.condition("Failed")["message"] == "the job was ended: runPolicy.terminate is true"
    wait_for("the workers to be deleted", lambda: set(job.pods()) <= {"launcher"})
    wait_for("the last event", lambda: job.events()["Failed"] == 1)


def test_a_suspended_job_that_is_terminated_never_creates_a_pod(
    submit_job: Submit, control_plane: OperatorControlPlane
) -> None:
    job = submit_job(runPolicy={"suspend": True})
    job.wait("Suspended")
    job.edit_policy(terminate=True)
    status = job.wait("Failed")
    assert "startTime" not in status
    wait_for("the last event", lambda: job.events() == {"Suspended": 1, "Failed": 1})
    assert set(control_plane.calls(job.namespace)) == {"patch horovodjobs/status", "create events"}


def test_a_finished_job_is_deleted_with_its_objects_after_its_ttl(submit_job: Submit, api: Api) -> None:
    job, kept = submit_job(runPolicy={"ttlSecondsAfterFinished": 2}), submit_job("kept")
    for each in (job, kept):
        each.advance_to("Running")
        each.end("launcher", 0)
    kept.wait("Succeeded")
    kept.edit_policy(ttlSecondsAfterFinished=3600)
    wait_for("the job to be deleted", lambda: api.find(job.path) is None)
    wait_for("its pods to be deleted", lambda: job.pods() == {})
    wait_for("the Secret to be deleted", lambda: api.find(job.secret_path) is None)
    kept.edit_policy(ttlSecondsAfterFinished=0)
    wait_for("the other job to be deleted", lambda: api.find(kept.path) is None)


def test_the_ttl_of_a_finished_job_runs_while_the_operator_is_down(
    submit_job: Submit, api: Api, operator: Operator
) -> None:
    job = submit_job(runPolicy={"ttlSecondsAfterFinished": 2}).advance_to("Succeeded")
    operator.kill()
    operator.start()
    wait_for("the job to be deleted", lambda: api.find(job.path) is None)


def test_a_job_managed_by_another_controller_is_not_changed(submit_job: Submit) -> None:
    foreign = submit_job("foreign", managedBy="kueue.x-k8s.io/multikueue")
    older = submit_job("older", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    own = submit_job("own", managedBy="horovodjob.dev/operator").advance_to("Running")
    for job in (foreign, older):
        assert job.status == {"observedGeneration": -1}
        assert job.pods() == {}
    own.end("launcher", 0)
    own.wait("Succeeded")


@pytest.mark.parametrize("policy", ["Restart", "Fail"])
def test_a_lost_worker_restarts_or_fails_the_job_as_the_policy_requires(submit_job: Submit, policy: str) -> None:
    job = submit_job(runPolicy={"onWorkerLoss": policy}).advance_to("Running")
    job.delete_pod("worker-1")
    if policy == "Restart":
        assert job.wait("Restarting")["preemptions"] == 1
        return
    status = job.wait("Failed")
    assert (status["preemptions"], status["errors"][-1]["pod"]) == (0, "train-worker-1")
    assert job.condition("Failed")["reason"] == "WorkerLost"
    assert job.condition("Failed")["message"].endswith("runPolicy.onWorkerLoss is Fail)")


def test_pods_that_are_not_all_scheduled_in_time_are_deleted_and_recreated(submit_job: Submit) -> None:
    job = submit_job(scheduling={"timeoutSeconds": 6})
    job.schedule(["worker-0"])
    first = job.uids()
    job.wait_for_condition("Queued", reason="SchedulingTimeout")
    message = job.condition("Queued")["message"]
    assert message.startswith("1 of 3 pods had a node after scheduling.timeoutSeconds, 6 s; all pods are deleted")
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    job.wait_for_pods()
    assert not set(first.values()) & set(job.uids().values())
    job.advance_to("Running", since="Queued")
    status = job.status
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 0)
    (error,) = status["errors"]
    assert (error["reason"], error["pod"], error["message"]) == ("SchedulingTimeout", "train-launcher", message)
    assert job.events()["SchedulingTimeout"] == 1


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting", "Succeeded"])
def test_a_deleted_job_leaves_no_objects(submit_job: Submit, api: Api, operator: Operator, phase: str) -> None:
    job = submit_job().advance_to(phase)
    wait_for("its series", lambda: operator.jobs(job.namespace) == {phase: 1})
    job.delete()
    # The operator may create objects until its watch reports the deletion.
    wait_for("the metrics of the job to be removed", lambda: operator.jobs(job.namespace) == {})
    wait_for("the job and its pods to be deleted", lambda: api.find(job.path) is None and job.pods() == {})
    wait_for("the Secret to be deleted", lambda: api.find(job.secret_path) is None)
    policy = f"/apis/networking.k8s.io/v1/namespaces/{job.namespace}/networkpolicies/train"
    wait_for("the NetworkPolicy to be deleted", lambda: api.find(policy) is None)


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
@pytest.mark.parametrize("phase", ["Queued", "Running", "Restarting", "Suspended", "Failed"])
def test_a_job_can_be_deleted_with_every_propagation_policy(
    submit_job: Submit, api: Api, propagation: str, phase: str
) -> None:
    job = submit_job(runPolicy={"suspend": phase == "Suspended", "cleanPodPolicy": "None"})
    if phase == "Failed":
        job.advance_to("Running")
        job.edit_policy(terminate=True)
    elif phase != "Suspended":
        job.advance_to(phase)
    job.wait(phase)
    if phase == "Queued":
        job.wait_for_pods()
    if phase == "Restarting":
        wait_for("the failed launcher to be deleted", lambda: "launcher" not in job.pods())
    before = set(job.pods())
    api.delete(job.path, {"propagationPolicy": propagation})
    wait_for("the job to be deleted", lambda: api.find(job.path) is None)
    if propagation == "Foreground":
        wait_for("its pods to be deleted", lambda: job.pods() == {})
        return
    # Orphans stay unchanged, and a job with the same name reports them as a conflict.
    assert before <= set(job.pods())
    assert [role for role, pod in job.pods().items() if "ownerReferences" in pod["metadata"]] == []


def test_a_terminal_status_never_changes(submit_job: Submit, operator: Operator) -> None:
    job = submit_job(runPolicy={"cleanPodPolicy": "None"}).advance_to("Succeeded")
    status = job.status
    for role in job.pods():
        job.delete_pod(role)
    operator.kill()
    operator.start()
    job.edit_policy(ttlSecondsAfterFinished=10**6)
    beside = submit_job("beside").advance_to("Running")
    beside.suspend()
    beside.wait("Suspended")
    wait_for("the newest generation", lambda: job.status["observedGeneration"] == job.get()["metadata"]["generation"])
    assert without_generation(job.status) == without_generation(status)
    assert job.pods() == {}


def test_a_terminated_job_names_the_pod_on_a_dead_node_that_prevents_its_end(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    worker = f"{job.pods_path}/train-worker-1"
    job.api.patch(worker, {"metadata": {"finalizers": ["example.com/no-kubelet"]}})
    job.edit_policy(terminate=True)
    plain = "the job was ended: runPolicy.terminate is true"
    hint = f"{plain}; waiting for pod train-worker-1 to terminate, which node node-1 should have stopped by "
    wait_for("the message", lambda: job.condition("Ready")["message"].startswith(hint))
    assert (job.phase, job.condition("Ready")["reason"]) == ("Terminating", "Terminated")
    job.api.patch(worker, {"metadata": {"finalizers": None}})
    job.wait("Failed")
    assert job.condition("Failed")["message"] == plain
