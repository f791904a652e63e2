"""The creation of the pods of a large job: a small job does not wait for it, and it ends with the job."""

from collections.abc import Callable

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job

WORKERS, BEGUN = 600, 5


def test_a_small_job_does_not_wait_for_all_pods_of_a_large_job_whose_suspension_or_deletion_ends_their_creation(
    submit_job: Callable[..., Job], api: Api, control_plane: OperatorControlPlane, namespace: str
) -> None:
    large = submit_job("large", worker={"replicas": WORKERS, "gpus": 0})
    wait_for("the first pods", lambda: count_pods(api, large) >= BEGUN)
    small = submit_job("small").wait_for_pods()
    large.suspend()
    wait_for("all its pods to be deleted", lambda: count_pods(api, large) == len(small))
    large.wait("Suspended")
    large.suspend(False)
    wait_for("the first pods", lambda: count_pods(api, large) >= BEGUN + len(small))
    large.delete()
    wait_for("all its pods to be deleted", lambda: count_pods(api, large) == len(small))
    # Some creations were on their way to the API server when the job was changed.
    assert control_plane.calls(namespace)["create pods"] < WORKERS


def count_pods(api: Api, job: Job) -> int:
    """The number of pods in the namespace of the job: a list of all of them would delay their creation."""
    found = api.get(f"{job.pods_path}?limit=1")
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))
