"""A job whose pods remain past a deadline waits for an event, and does not occupy the operator."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from integration.quota import Quota
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import make_namespace
from support.job_driver import Job, submit
from support.operator_process import Operator

HOLD = {"metadata": {"finalizers": ["example.com/no-kubelet"]}}
TIMEOUT_SECONDS, WINDOW_SECONDS, MOST_RECONCILIATIONS = 6, 3, 15


@pytest.fixture
def other_namespace(api: Api, namespace: str) -> Iterator[str]:
    """A namespace without a quota."""
    name = f"{namespace}-other"
    make_namespace(api, name)
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


def test_a_job_that_cannot_continue_does_not_occupy_the_operator(
    submit_job: Callable[..., Job], operator: Operator, api: Api, namespace: str, other_namespace: str
) -> None:
    job = submit_job(scheduling={"timeoutSeconds": TIMEOUT_SECONDS})
    job.wait_for_pods()
    launcher = f"{job.pods_path}/{job.name}-launcher"
    api.patch(launcher, HOLD)  # its node does not respond
    Quota(api, namespace, 0)
    job.delete_pod("worker-1")
    wait_for("the refusal", lambda: set(job.pods()) == {"launcher"})
    deadline = datetime.now(UTC) + timedelta(seconds=TIMEOUT_SECONDS + 1)
    wait_for("its deadline", lambda: datetime.now(UTC) > deadline)
    before, end = reconciliations(operator), time.monotonic() + WINDOW_SECONDS
    wait_for("some seconds", lambda: time.monotonic() > end)
    assert operator.get("/healthz")[0] == 200
    assert reconciliations(operator) - before < MOST_RECONCILIATIONS
    submit(api, other_namespace).advance_to("Succeeded")
    api.patch(launcher, {"metadata": {"finalizers": None}})


def reconciliations(operator: Operator) -> float:
    """The number of reconciliations so far; a busy operator does not answer."""
    status, _ = operator.get("/metrics")
    if status != 200:
        operator.kill()  # the other tests need one that is not busy
    assert status == 200, "the event loop of the operator is busy"
    return operator.metrics()["horovodjob_operator_reconcile_duration_seconds_count"]
