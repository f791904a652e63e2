"""Elastic jobs on a real API server: scaling, lost workers, and the published hosts."""

from collections.abc import Callable, Iterable

import pytest

from support.api_client import ApiError, wait_for
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]
ELASTIC = {"elastic": {"minReplicas": 2, "maxReplicas": 12}}


def scale(job: Job, replicas: int) -> None:
    """Scales the job through the scale subresource, as `kubectl scale` does."""
    job.api.patch(f"{job.path}/scale", {"spec": {"replicas": replicas}})


def wait_for_hosts(job: Job, indices: Iterable[int], slots: int = 1) -> None:
    """Waits until the launcher has exactly these hosts, in this order."""

    def poll() -> bool:
        pods = job.pods()
        addresses = [pods.get(f"worker-{index}", {}).get("status", {}).get("podIP") for index in indices]
        return job.hosts == "".join(f"{address} slots={slots}\n" for address in addresses)

    wait_for(f"hosts {list(indices)}", poll)


def join(job: Job, *indices: int) -> None:
    """Schedules and starts the new workers."""
    roles = [f"worker-{index}" for index in indices]
    job.schedule(roles)
    for role in roles:
        job.start(role)


def test_the_scale_subresource_adds_and_removes_workers(submit_job: Submit, operator: Operator) -> None:
    job = submit_job(worker={"replicas": 2, "gpus": 0, "slots": 2}, **ELASTIC).advance_to("Running")
    kept = job.uids()
    for outside in (1, 13):
        with pytest.raises(ApiError, match=r"worker\.replicas must be from elastic\.minReplicas"):
            scale(job, outside)
    scale(job, 12)
    job.wait_for_pods()
    # All workers with a node are hosts, in the order of their indices.
    join(job, 10, 2)
    wait_for_hosts(job, (0, 1, 2, 10), slots=2)
    operator.kill()
    join(job, *(index for index in range(3, 12) if index != 10))
    operator.start()
    wait_for_hosts(job, range(12), slots=2)
    wait_for("the size", lambda: (job.status["replicas"], job.status["workersReady"]) == (12, "12/12"))
    scale(job, 2)
    wait_for_hosts(job, (0, 1), slots=2)
    wait_for("the other workers to be deleted", lambda: set(job.pods()) == {"launcher", "worker-0", "worker-1"})
    assert job.uids() == kept
    wait_for("the size", lambda: job.status["replicas"] == 2)
    status = job.status
    assert (status["phase"], status["replicas"], status["attempt"]) == ("Running", 2, 1)
    assert (status["restarts"], status["preemptions"], status.get("errors", [])) == (0, 0, [])
    wait_for("the event of the last size", lambda: job.events()["Resized"])
