"""Finished jobs: the operator caches little of them, and still handles their TTL, clean-up and changes."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.api_client import JOBS, Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job, timestamp
from support.operator_process import Operator

Submit = Callable[..., Job]


def finished_job(job: Job, api: Api, ago: timedelta, name: str, **policy: Any) -> Job:
    """A copy of a finished job that ended some time ago."""
    source = job.get()
    spec = {**source["spec"], "runPolicy": {**source["spec"].get("runPolicy", {}), **policy}}
    body = {"apiVersion": source["apiVersion"], "kind": source["kind"], "metadata": {"name": name}, "spec": spec}
    made = api.create(JOBS.format(job.namespace), body)
    at = (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {**source["status"], "completionTime": at, "observedGeneration": 1}
    other = Job(api, job.namespace, name, made["metadata"]["uid"])
    api.patch(f"{other.path}/status", {"status": status})
    return other


@pytest.fixture
def finished(submit_job: Submit) -> Job:
    job = submit_job().advance_to("Succeeded")
    wait_for("its workers to be deleted", lambda: set(job.pods()) == {"launcher"})
    return job


def test_a_starting_operator_counts_finished_jobs_without_requests_and_completes_their_end(
    finished: Job, submit_job: Submit, api: Api, operator_process: Operator, control_plane: OperatorControlPlane
) -> None:
    unclean = submit_job("unclean").advance_to("Running")
    operator_process.kill()
    kept = [finished_job(finished, api, timedelta(days=1), f"old-{number}") for number in range(3)]
    late = finished_job(finished, api, timedelta(days=1), "late", ttlSecondsAfterFinished=60)
    later = finished_job(finished, api, timedelta(minutes=15), "later", ttlSecondsAfterFinished=15 * 60 + 5)
    unclean.end("launcher", 0)
    api.patch(f"{unclean.path}/status", {"status": {**finished.status, "completionTime": timestamp()}})
    finished.delete()
    before = len(control_plane.requests(finished.namespace))
    operator_process.start()
    wait_for("the clean-up", lambda: set(unclean.pods()) == {"launcher"})
    for job in (late, later):
        wait_for(f"{job.name} to be deleted", lambda: api.find(job.path) is None)  # noqa: B023
    wait_for("the count", lambda: operator_process.jobs(finished.namespace) == {"Succeeded": len(kept) + 1})
    expected = {"deletecollection pods": 1, "delete horovodjobs": 2}
    assert Counter(control_plane.requests(finished.namespace)[before:]) == expected
    kept[0].delete()
    wait_for("one to be forgotten", lambda: operator_process.jobs(finished.namespace) == {"Succeeded": len(kept)})


def test_a_change_of_a_finished_job_is_observed(finished: Job, api: Api, operator: Operator) -> None:
    wait_for("the last event", lambda: finished.events()["Succeeded"])
    assert api.find(finished.secret_path), "it stays until the job is deleted"
    finished.edit_policy(ttlSecondsAfterFinished=10**7)
    generation = finished.get()["metadata"]["generation"]
    wait_for("the observation", lambda: finished.status["observedGeneration"] == generation)
    finished.edit_policy(ttlSecondsAfterFinished=0)
    wait_for("its deletion", lambda: api.find(finished.path) is None)
    wait_for("the count", lambda: operator.jobs(finished.namespace) == {})
    wait_for("the SSH Secret to be deleted", lambda: api.find(finished.secret_path) is None)
