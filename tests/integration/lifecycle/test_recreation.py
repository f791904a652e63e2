"""Jobs that are deleted and created again with the same names, with the garbage collection of a real cluster."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.api_client import JOBS, Api
from support.control_plane.operator_control_plane import DEFAULT_CLIENT_LIMITS, OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job

COUNT = 20
OTHERS_PER_JOB = 5


@pytest.fixture
def default_client_limits(control_plane: OperatorControlPlane, api: Api) -> Iterator[None]:
    """Controllers with the limits of Kubernetes for their requests."""
    control_plane.restart_controllers(*DEFAULT_CLIENT_LIMITS)
    yield
    control_plane.restart_controllers()


def spec(number: int) -> dict[str, Any]:
    """Every third job has a Service too."""
    return {"worker": {"replicas": 1, "gpus": 0}, "network": {"service": number % 3 == 0}}


def give_other_objects(api: Api, job: Job) -> None:
    """Creates objects that belong to the job and are garbage after it, such as those of other controllers."""
    owner = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "name": job.name, "uid": job.uid}
    for number in range(OTHERS_PER_JOB):
        metadata = {"name": f"{job.name}-{number}", "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        api.create(f"/api/v1/namespaces/{job.namespace}/configmaps", body)


def test_jobs_that_are_created_again_with_the_same_names_wait_for_garbage_collection(
    default_client_limits: None, submit_job: Callable[..., Job], api: Api, namespace: str, recorder: Recorder
) -> None:
    old = [submit_job(f"job-{number}", **spec(number)) for number in range(COUNT)]
    for each in old:
        give_other_objects(api, each)
        each.wait_for_pods()
    # One request, as `kubectl replace --force` and CI pipelines do.
    api.delete(JOBS.format(namespace))
    new = [submit_job(f"job-{number}", **spec(number)) for number in range(COUNT)]
    for each in new:
        each.wait_for_pods()
    recorder.catch_up(namespace)
    stalled = {each.name: reasons for each in new if (reasons := stalled_reasons(recorder, each))}
    assert stalled == {}
    assert {each.status["attempt"] for each in new} == {1}


def stalled_reasons(recorder: Recorder, job: Job) -> set[str]:
    """The reasons with which the job has ever been Stalled."""
    statuses = [version["status"] for version in recorder.versions[job.uid]]
    conditions = [condition for status in statuses for condition in status.get("conditions", ())]
    return {one["reason"] for one in conditions if (one["type"], one["status"]) == ("Stalled", "True")}
