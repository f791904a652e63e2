"""The creation of the pods of a large job is interrupted when the job is suspended, terminated or deleted."""

from collections.abc import Callable

import pytest

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job

WORKERS, BEGUN = 600, 5
INTERRUPTIONS: dict[str, Callable[[Job], None]] = {
    "suspended": Job.suspend,
    "terminated": lambda job: job.edit_policy(terminate=True),
    "deleted": Job.delete,
}


@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_the_creation_of_pods_is_interrupted_when_the_job_is(
    submit_job: Callable[..., Job], api: Api, control_plane: OperatorControlPlane, namespace: str, how: str
) -> None:
    job = submit_job(worker={"replicas": WORKERS, "gpus": 0})
    wait_for("the first pods", lambda: count_pods(api, job) >= BEGUN)
    INTERRUPTIONS[how](job)
    wait_for("all pods to be deleted", lambda: count_pods(api, job) == 0)
    if how != "deleted":
        job.wait("Suspended" if how == "suspended" else "Failed")
    # Some creations were on their way to the API server when the job was changed.
    assert control_plane.calls(namespace)["create pods"] < WORKERS / 2


def count_pods(api: Api, job: Job) -> int:
    """The number of pods in the namespace of the job: a list of all of them would delay their creation."""
    found = api.get(f"{job.pods_path}?limit=1")
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))
