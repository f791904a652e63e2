"""Pods that others change, and what a finalizer keeps of a job."""

from collections.abc import Callable

from support.api_client import Api, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]


def test_a_pod_that_loses_a_label_of_the_job_is_replaced_without_requests_that_repeat(
    submit_job: Submit, api: Api
) -> None:
    job = submit_job().advance_to("Running")
    before = job.uids()
    api.patch(f"{job.pods_path}/{job.name}-worker-0", {"metadata": {"labels": {"horovodjob.dev/job": None}}})
    job.wait("Restarting")
    job.skip_backoff()
    wait_for("a new pod", lambda: before["worker-0"] not in job.uids().values() and len(job.uids()) == 3)
    job.advance_to("Succeeded")


def test_orphans_of_a_job_that_a_finalizer_keeps_stay(submit_job: Submit, api: Api) -> None:
    job = submit_job()
    pods = set(job.wait_for_pods())
    api.patch(job.path, {"metadata": {"finalizers": ["example.com/export"]}})
    api.delete(job.path, {"propagationPolicy": "Orphan"})
    wait_for("the orphans", lambda: job.get()["metadata"]["finalizers"] == ["example.com/export"])
    api.patch(job.path, {"metadata": {"annotations": {"example.com/export": "done"}}})
    submit_job("beside").advance_to("Succeeded")  # meanwhile the operator has seen the change
    assert set(job.pods()) == pods
    assert [role for role, pod in job.pods().items() if "ownerReferences" in pod["metadata"]] == []
    api.patch(job.path, {"metadata": {"finalizers": None}})


def test_a_job_kept_by_a_finalizer_gives_its_nodes_back_at_its_end(submit_job: Submit, api: Api) -> None:
    job = submit_job().advance_to("Running")
    api.patch(job.path, {"metadata": {"finalizers": ["example.com/export"]}})
    api.delete(job.path)
    job.end("launcher", 0)
    wait_for("the workers to end", lambda: not [role for role in job.pods() if role.startswith("worker")])
    assert job.get()["status"]["phase"] == "Succeeded"
    api.patch(job.path, {"metadata": {"finalizers": None}})
