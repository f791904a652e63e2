"""What the user can wish of a job that is under way: suspend, resume, a deadline, its end."""

from collections.abc import Callable

import pytest

from api.client import Api, wait_for
from handling.player import Job
from handling.process import Operator

Submit = Callable[..., Job]


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting"])
def test_a_job_can_be_suspended_in_any_phase_and_runs_again(submitted: Submit, phase: str) -> None:
    job = submitted().bring_to(phase)
    job.suspend()
    status = job.wait("Suspended")
    wait_for("the pods to go", lambda: job.pods() == {})
    assert "startTime" not in status
    job.suspend(False)
    job.bring_to("Succeeded")
    wait_for("the last event", lambda: job.events()["Succeeded"])
    assert (job.events()["Suspended"], job.events()["Resumed"]) == (1, 1)


def test_a_wish_that_comes_while_the_status_is_written_is_not_lost(submitted: Submit) -> None:
    jobs = [submitted(f"hasty-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(5)]
    for wish in (True, False) * 5:
        for job in jobs:
            job.suspend(wish)
    for job in jobs:
        job.wait("Queued")
        job.wait_for_pods()
        assert job.status["observedGeneration"] == job.get()["metadata"]["generation"]


def test_a_job_that_is_born_suspended_has_no_pods(submitted: Submit, api: Api) -> None:
    job = submitted(runPolicy={"suspend": True})
    job.wait("Suspended")
    assert job.pods() == {}
    assert api.find(f"/api/v1/namespaces/{job.namespace}/secrets/train-mpi") is None


def test_a_suspended_job_can_come_back_with_another_size(submitted: Submit) -> None:
    job = submitted().bring_to("Running")
    job.suspend(True, worker={"replicas": 3})
    job.wait("Suspended")
    wait_for("the pods to go", lambda: job.pods() == {})
    job.suspend(False)
    job.place()
    job.run()
    job.wait("Running")
    assert len(job.hosts.splitlines()) == 3


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running"])
def test_a_deadline_ends_the_job_in_any_phase(submitted: Submit, phase: str) -> None:
    job = submitted(runPolicy={"activeDeadlineSeconds": 3600}).bring_to(phase)
    job.api.patch(f"{job.path}/status", {"status": {"startTime": "2020-01-01T00:00:00Z"}})
    job.wait("Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert "runPolicy.activeDeadlineSeconds: 3600 s" in job.condition("Failed")["message"]
    wait_for("the workers to go", lambda: set(job.pods()) <= {"launcher"})


def test_a_deadline_that_passes_is_noticed_without_any_event(submitted: Submit) -> None:
    job = submitted(runPolicy={"activeDeadlineSeconds": 1})
    job.wait("Failed")


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting", "Succeeded"])
def test_a_deleted_job_leaves_nothing(submitted: Submit, api: Api, operator: Operator, phase: str) -> None:
    job = submitted().bring_to(phase)
    job.delete()
    wait_for("everything to go", lambda: api.find(job.path) is None and job.pods() == {})
    secret = f"/api/v1/namespaces/{job.namespace}/secrets/train-mpi"
    wait_for("the Secret to go", lambda: api.find(secret) is None)
    series = f'horovodjob_jobs{{namespace="{job.namespace}"'
    assert [name for name in operator.metrics() if name.startswith(series)] == []


def test_a_terminal_status_never_changes(submitted: Submit, operator: Operator) -> None:
    job = submitted(runPolicy={"cleanPodPolicy": "None"}).bring_to("Succeeded")
    status = job.status
    for role in job.pods():
        job.remove(role)
    operator.kill()
    operator.start()
    for wish in (True, False):
        job.suspend(wish)
    beside = submitted("beside").bring_to("Running")
    beside.suspend()
    beside.wait("Suspended")
    assert job.status == status
    assert job.pods() == {}
