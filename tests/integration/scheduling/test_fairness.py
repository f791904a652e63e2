"""Fairness between large and small jobs."""

from collections.abc import Callable

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job

WORKERS = 400


def test_a_small_job_does_not_wait_for_all_pods_of_a_large_job(
    submit_job: Callable[..., Job], api: Api, control_plane: OperatorControlPlane, namespace: str
) -> None:
    big = submit_job("big", worker={"replicas": WORKERS, "gpus": 0})
    wait_for("its first pod", lambda: api.find(f"{big.pods_path}/big-launcher"))
    small = submit_job("small")
    submitted_at = int(small.get()["metadata"]["resourceVersion"])
    made = [int(pod["metadata"]["resourceVersion"]) for pod in small.wait_for_pods().values()]
    wait_for("all pods", lambda: control_plane.calls(namespace)["create pods"] >= WORKERS + 1 + len(made))
    pods = wait_for("all pods", lambda: pods if len(pods := big.pods()) == WORKERS + 1 else {})
    versions = sorted(int(pod["metadata"]["resourceVersion"]) for pod in pods.values())
    later = [version for version in versions if version > submitted_at]
    # With one queue of requests it would be after all of them. How much earlier it is depends on the machine.
    assert max(made) < later[len(later) * 9 // 10]
