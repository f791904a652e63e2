"""How a job ends other than by its program: told to, without a worker, after its time. All run side by side."""

from __future__ import annotations

import pytest

from e2e.access import wait_for
from e2e.space import Space

TWO = {"replicas": 2}
# Says so when it is told to end; the launcher keeps the log.
TOLD = "trap 'echo \"$HOSTNAME is told to end\"; exit 143' TERM; echo runs; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def space(module_space: Space) -> Space:
    """The namespace, with all jobs in it."""
    module_space.apply(
        module_space.job("told", TOLD, worker=TWO),
        module_space.job("loss", "exec sleep 3600", worker=TWO, runPolicy={"onWorkerLoss": "Fail"}),
        module_space.job("brief", "true", runPolicy={"ttlSecondsAfterFinished": 3}),
        module_space.job("foreign", "true", runPolicy={"managedBy": "example.org/queue"}),
    )
    return module_space


def test_a_job_that_is_told_to_end_lets_its_ranks_save_and_keeps_its_record_and_log(space: Space) -> None:
    space.wait_phase("told", "Running")
    wait_for("both ranks", lambda: space.output("told") == ["runs"] * 2)
    space.change("told", {"runPolicy": {"terminate": True}})
    status = space.wait_phase("told", "Failed")
    assert space.condition("told", "Failed")["reason"] == "Terminated"
    assert (status["restarts"], status["attempt"]) == (0, 1)
    assert "Terminating" in space.phases("told")
    wait_for("the workers to go", lambda: list(space.pods("told")) == ["told-launcher"])
    words = {f"told-worker-{index} is told to end" for index in (0, 1)}
    assert words <= set(space.output("told"))


def test_a_worker_that_is_lost_ends_a_job_that_says_so(space: Space) -> None:
    space.wait_phase("loss", "Running")
    space.delete_pod("loss-worker-1", 0)
    status = space.wait_phase("loss", "Failed")
    assert (space.condition("loss", "Failed")["reason"], status["attempt"]) == ("WorkerLost", 1)


def test_a_job_goes_with_all_it_owns_when_its_time_after_the_end_is_over(space: Space) -> None:
    wait_for("the job to end and to go", lambda: space.pods_ever("brief") and not space.find("brief"))
    wait_for("its pods to go", lambda: not space.pods("brief"))
    wait_for("its Secret to go", lambda: "brief-mpi" not in space.secrets())


def test_a_job_that_somebody_else_manages_is_left_alone(space: Space) -> None:
    space.wait_phase("loss", "Failed")  # the operator has seen all of them by then
    assert space.status("foreign") == {"observedGeneration": -1}
    assert not space.pods_ever("foreign")
