"""Jobs whose pods remain past a deadline: each waits for an event, and none occupies the operator."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from integration.quota import Quota
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import make_namespace
from support.job_driver import Job, submit
from support.operator_process import Operator

Submit = Callable[..., Job]
HOLD = {"metadata": {"finalizers": ["example.com/no-kubelet"]}}
WINDOW_SECONDS, MOST_RECONCILIATIONS = 3, 15


@pytest.fixture
def held_pods(api: Api) -> Iterator[list[str]]:
    """Paths of the pods whose node does not respond, until the end of the test."""
    paths: list[str] = []
    yield paths
    for path in paths:
        api.patch(path, {"metadata": {"finalizers": None}})


def hold(job: Job, role: str, held_pods: list[str]) -> None:
    """A terminating pod stays: its node does not respond."""
    held_pods.append(f"{job.pods_path}/{job.name}-{role}")
    job.api.patch(held_pods[-1], HOLD)


def image_error_on_a_dead_node(submit_job: Submit, held_pods: list[str]) -> Job:
    """A pod that cannot get its image is terminating, and the time for its image has passed."""
    elastic = {"minReplicas": 1, "maxReplicas": 2}
    job = submit_job("stuck", elastic=elastic, scheduling={"timeoutSeconds": 5}).advance_to("Starting")
    hold(job, "worker-0", held_pods)
    job.report_waiting("worker-0", "ImagePullBackOff", "not found")
    job.wait_for_condition("Reconciling", reason="ImagePullFailed")
    job.delete_pod("worker-0")
    return job


def refusal_with_a_terminating_launcher(submit_job: Submit, held_pods: list[str]) -> Job:
    """A worker is refused, and the launcher is terminating when the time for nodes has passed."""
    job = submit_job("stuck", scheduling={"timeoutSeconds": 6})
    job.wait_for_pods()
    hold(job, "launcher", held_pods)
    Quota(job.api, job.namespace, 0)
    job.delete_pod("worker-1")
    wait_for("the refusal", lambda: set(job.pods()) == {"launcher"})
    return job


def evidence_at_the_deadline(submit_job: Submit, held_pods: list[str]) -> Job:
    """The launcher was killed, and workers may still report why when the time for nodes has passed."""
    job = submit_job("stuck", scheduling={"timeoutSeconds": 3})
    job.schedule(["launcher", "worker-0"])
    job.clock_skew = timedelta(seconds=30)  # the clock of the node is ahead
    job.end("launcher", 137)
    return job


STUCK = {
    "image error on a dead node": image_error_on_a_dead_node,
    "refusal with a terminating launcher": refusal_with_a_terminating_launcher,
    "evidence at the deadline": evidence_at_the_deadline,
}


@pytest.fixture
def other_namespace(api: Api, namespace: str) -> Iterator[str]:
    """A namespace without a quota."""
    name = f"{namespace}-other"
    make_namespace(api, name)
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("stuck", STUCK)
def test_a_job_that_cannot_continue_does_not_occupy_the_operator(
    submit_job: Submit, operator: Operator, api: Api, other_namespace: str, held_pods: list[str], stuck: str
) -> None:
    job = STUCK[stuck](submit_job, held_pods)
    seconds = job.get()["spec"]["scheduling"]["timeoutSeconds"]
    deadline = datetime.now(UTC) + timedelta(seconds=seconds + 1)
    wait_for("its deadline", lambda: datetime.now(UTC) > deadline)
    before, end = reconciliations(operator), time.monotonic() + WINDOW_SECONDS
    wait_for("some seconds", lambda: time.monotonic() > end)
    assert operator.get("/healthz")[0] == 200
    assert reconciliations(operator) - before < MOST_RECONCILIATIONS
    submit(api, other_namespace).advance_to("Succeeded")


def reconciliations(operator: Operator) -> float:
    """The number of reconciliations so far; a busy operator does not answer."""
    status, _ = operator.get("/metrics")
    if status != 200:
        operator.kill()  # the other tests need one that is not busy
    assert status == 200, "the event loop of the operator is busy"
    return operator.metrics()["horovodjob_operator_reconcile_duration_seconds_count"]
