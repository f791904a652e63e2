"""Jobs in a namespace with a ResourceQuota: the real quota controller, and real pods."""

from typing import Any

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace

CPU = {"resources": {"requests": {"cpu": "100m"}}}
SMALL: Any = {"command": ["hostname"], "worker": {"replicas": 2, "gpus": 0, **CPU}, "launcher": CPU}


def quota(cpu: str) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpu"}}
    return {**body, "spec": {"hard": {"requests.cpu": cpu}}}


def set_quota(namespace: Namespace, cpu: str) -> None:
    """Applies the quota, and waits until the API server counts with it."""
    namespace.apply(quota(cpu))

    def counts() -> bool:
        found = namespace.api.find(f"{namespace.core}/resourcequotas/cpu") or {}
        return bool(found.get("status", {}).get("hard", {}).get("requests.cpu") == cpu)

    wait_for("the quota", counts)


@pytest.mark.parametrize("on_worker_loss", ["Restart", "Fail"])
def test_a_job_of_which_one_pod_is_refused_is_queued_and_runs_when_there_is_room(
    namespace: Namespace, on_worker_loss: str
) -> None:
    """The launcher and two workers of 100m need 300m."""
    set_quota(namespace, "250m")
    namespace.apply(namespace.job("small", **SMALL, runPolicy={"onWorkerLoss": on_worker_loss}))
    namespace.wait_reason("small", "QuotaExceeded")
    assert namespace.status("small")["phase"] == "Queued"
    wait_for("no pod that keeps a part of the quota", lambda: not namespace.pods("small"))
    set_quota(namespace, "300m")
    status = namespace.wait_phase("small", "Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    assert (status.get("errors", []), status["restarts"], status["preemptions"]) == ([], 0, 0)
    assert set(namespace.events("small")) <= {"Created", "Admitted", "WorkersReady", "Started", "Succeeded"}
    assert namespace.phases("small")[0] == "Queued"


def test_two_jobs_with_room_for_one_run_one_after_the_other(namespace: Namespace) -> None:
    set_quota(namespace, "450m")
    for name in ("first", "second"):
        namespace.apply(namespace.job(name, **SMALL, runPolicy={"onWorkerLoss": "Fail"}))
    for name in ("first", "second"):
        status = namespace.wait_phase(name, "Succeeded", "Failed")
        assert (status["phase"], status.get("errors", [])) == ("Succeeded", [])
