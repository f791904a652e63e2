"""Spec updates of a job: suspension, resumption, deadlines, termination, TTL and deletion."""

from collections.abc import Callable
from functools import partial

import pytest

from integration.scenarios import suspend
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]


def test_a_suspended_job_can_resume_with_another_size_and_image(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    job.suspend(True, worker={"replicas": 3})
    assert "startTime" not in job.wait("Suspended")
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    job.suspend(True, image="trainer:2")
    for _ in range(2):
        job.suspend(False)
    job.schedule()
    job.run()
    job.wait("Running")
    assert len(job.hosts.splitlines()) == 3
    assert {pod["spec"]["containers"][0]["image"] for pod in job.pods().values()} == {"trainer:2"}
    job.end("launcher", 0)
    job.wait("Succeeded")
    wait_for("the last event", lambda: job.events()["Succeeded"])
    assert (job.events()["Suspended"], job.events()["Resumed"]) == (1, 1)


def is_observed(job: Job) -> bool:
    """Whether the status is about the newest spec."""
    found = job.get()
    return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])


def test_a_change_of_the_spec_while_the_status_is_written_is_not_lost(submit_job: Submit) -> None:
    jobs = [submit_job(f"hasty-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(3)]
    for suspended in (True, False) * 5:
        for job in jobs:
            job.suspend(suspended)
    for job in jobs:
        wait_for("the newest spec", partial(is_observed, job))
        job.wait("Queued")
        job.wait_for_pods()


def test_a_job_created_suspended_creates_no_objects_and_no_pod_if_it_is_terminated(
    submit_job: Submit, control_plane: OperatorControlPlane
) -> None:
    job = submit_job(runPolicy={"suspend": True})
    job.wait("Suspended")
    wait_for("the event", lambda: job.events()["Suspended"])
    assert control_plane.calls(job.namespace) == {"patch horovodjobs/status": 1, "create events": 1}
    job.edit_policy(terminate=True)
    assert "startTime" not in job.wait("Failed")
    wait_for("the last event", lambda: job.events() == {"Suspended": 1, "Failed": 1})
    assert set(control_plane.calls(job.namespace)) == {"patch horovodjobs/status", "create events"}


def optional_objects(job: Job) -> tuple[str, str]:
    """Paths of the NetworkPolicy and the Service of a job."""
    namespace = f"namespaces/{job.namespace}"
    return (
        f"/apis/networking.k8s.io/v1/{namespace}/networkpolicies/{job.name}",
        f"/api/v1/{namespace}/services/{job.name}",
    )


def test_a_job_changed_while_the_operator_is_down_gets_new_pods_and_a_running_one_what_was_deleted(
    submit_job: Submit, api: Api, operator: Operator
) -> None:
    changed, kept = (submit_job(name, network={"service": True}).advance_to("Running") for name in ("changed", "kept"))
    assert all(api.find(path) for job in (changed, kept) for path in optional_objects(job))
    old, pods = set(changed.uids().values()), kept.uids()
    operator.kill()
    changed.suspend(True, image="trainer:2", network={"isolate": False, "service": False})
    changed.suspend(False)
    for path in optional_objects(kept):
        api.delete(path)
    operator.start()
    wait_for("the new pods", lambda: len(changed.pods()) == 3 and old.isdisjoint(changed.uids().values()))
    changed.advance_to("Running", since="Queued")
    assert {pod["spec"]["containers"][0]["image"] for pod in changed.pods().values()} == {"trainer:2"}
    assert (changed.status["attempt"], changed.status["restarts"], changed.status["preemptions"]) == (2, 0, 0)
    assert max(changed.events()["Suspended"], changed.events()["Resumed"]) <= 1
    assert [path for path in optional_objects(changed) if api.find(path)] == []
    wait_for("both to be created again", lambda: all(api.find(path) for path in optional_objects(kept)))
    assert (kept.phase, kept.uids()) == ("Running", pods)
    suspend(kept)
    kept.suspend(False, network={"isolate": False, "service": False})
    kept.advance_to("Running")
    assert [path for path in optional_objects(kept) if api.find(path)] == []


def test_a_deadline_takes_effect_without_any_event(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"activeDeadlineSeconds": 1})
    job.wait("Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert "runPolicy.activeDeadlineSeconds: 1 s" in job.condition("Failed")["message"]


def test_a_finished_job_is_deleted_with_its_objects_after_its_ttl(submit_job: Submit, api: Api) -> None:
    job, kept = submit_job(runPolicy={"ttlSecondsAfterFinished": 2}), submit_job("kept")
    for each in (job, kept):
        each.advance_to("Running")
        each.end("launcher", 0)
    kept.wait("Succeeded")
    wait_for("the job to be deleted", lambda: api.find(job.path) is None)
    wait_for("its pods to be deleted", lambda: job.pods() == {})
    wait_for("the Secret to be deleted", lambda: api.find(job.secret_path) is None)
    assert api.find(kept.path), "it has no time to live"


def test_a_job_managed_by_another_controller_is_not_changed(submit_job: Submit) -> None:
    foreign = submit_job("foreign", managedBy="kueue.x-k8s.io/multikueue")
    older = submit_job("older", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    submit_job("own", managedBy="horovodjob.dev/operator").advance_to("Running")
    for job in (foreign, older):
        assert job.status == {"observedGeneration": -1}
        assert job.pods() == {}


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
def test_a_job_can_be_deleted_with_every_propagation_policy(
    submit_job: Submit, api: Api, operator: Operator, control_plane: OperatorControlPlane, propagation: str
) -> None:
    job = submit_job().advance_to("Running")
    wait_for("its series", lambda: operator.jobs(job.namespace) == {"Running": 1})
    before = set(job.pods())
    api.delete(job.path, {"propagationPolicy": propagation})
    wait_for("the job to be deleted", lambda: api.find(job.path) is None)
    wait_for("the metrics of the job to be removed", lambda: operator.jobs(job.namespace) == {})
    if propagation == "Orphan":  # they stay unchanged, and a job with the same name reports them as a conflict
        assert before <= set(job.pods())
        assert [role for role, pod in job.pods().items() if "ownerReferences" in pod["metadata"]] == []
        return
    wait_for("its pods to be deleted", lambda: job.pods() == {})
    for path in (job.secret_path, optional_objects(job)[0]):
        wait_for(f"{path} to be deleted", lambda: api.find(path) is None)  # noqa: B023
    assert control_plane.calls(job.namespace)["create pods"] == 3
