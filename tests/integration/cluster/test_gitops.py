"""A running operator and a GitOps tool that applies the manifest of a job again, or prunes it."""

from collections.abc import Callable

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job


def test_a_job_deleted_after_its_ttl_runs_again_when_it_is_applied_again(
    api: Api, submit_job: Callable[..., Job]
) -> None:
    first = submit_job(runPolicy={"ttlSecondsAfterFinished": 0}).advance_to("Running")
    first.end("launcher", 0)
    wait_for("the deletion", lambda: not api.find(first.path))
    second = submit_job(runPolicy={"ttlSecondsAfterFinished": 0})  # as self-heal does with missing objects
    second.advance_to("Running")
    assert second.uid != first.uid


def test_foreground_deletion_deletes_the_pods_and_creates_no_others(
    api: Api, control_plane: OperatorControlPlane, submit_job: Callable[..., Job]
) -> None:
    job = submit_job().advance_to("Running")
    api.delete(job.path, {"propagationPolicy": "Foreground"})  # as Argo CD prunes
    wait_for("the deletion", lambda: not api.find(job.path))
    wait_for("the end of the pods", lambda: not job.pods())
    assert control_plane.calls(job.namespace)["create pods"] == 3
