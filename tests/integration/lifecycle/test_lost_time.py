"""What the time of a job was used for, and its slow rank: what the reports cost, and what they cause."""

from collections.abc import Callable
from typing import Any

from support.api_client import wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator
from support.progress_client import post, token_of

SLOW = {"rank": 5, "pod": "train-worker-1", "ratio": 1.6, "section": "input"}


def usage(seconds: float, slowest: dict[str, Any] | None = None) -> dict[str, Any]:
    """The fields of a report: so long were the steps."""
    found = {"seconds": {"steps": seconds}, "steps": 10, "firstStep": 0}
    return {"stall": None, "usage": found | ({"slowestRank": slowest} if slowest else {})}


def test_reports_cost_no_writes_and_a_slow_rank_one_and_its_end_another(
    submit_job: Callable[..., Job], operator: Operator, control_plane: OperatorControlPlane
) -> None:
    job = submit_job("train", worker={"replicas": 2, "gpus": 4}).advance_to("Running")
    token = token_of(job)

    def writes() -> int:
        return control_plane.calls(job.namespace)["patch horovodjobs/status"]

    def slowest() -> Any:
        return job.status.get("training", {}).get("slowestRank")

    before = writes()
    for seconds in (0.2, 0.4):
        assert post(operator, token, **usage(seconds)) == 204
    assert post(operator, token, **usage(0.6, SLOW)) == 204
    assert wait_for("the slow rank", slowest) == SLOW | {"node": "node-1"}
    for ratio in (1.7, 1.8):
        assert post(operator, token, **usage(0.8, SLOW | {"ratio": ratio})) == 204
    assert post(operator, token, **usage(1e12)) == 204
    wait_for("its end", lambda: not slowest())
    assert writes() == before + 2
    wait_for("the event", lambda: job.events()["SlowRank"] == 1)

    job.end("launcher", 0)
    goodput = job.wait("Succeeded")["training"]["goodput"]
    assert writes() == before + 3
    # The report claims more than the time of the job, which has no other cause then.
    total = sum(goodput["seconds"].values())
    assert 0 < total < 600
    assert goodput["seconds"]["steps"] >= total - 1
    counted = operator.samples("horovodjob_gpu_seconds_total", "cause", namespace=job.namespace)
    assert sum(counted.values()) == 8 * total
