"""Suspending and resuming."""

from __future__ import annotations

from e2e.access import wait_for
from e2e.space import Space

HELD = "until [ -e /tmp/go ]; do sleep 0.1; done"


def test_a_job_is_suspended_and_the_same_job_runs_when_it_is_resumed(space: Space) -> None:
    space.apply(
        space.job("paused", HELD, worker={"replicas": 2}),
        space.job("later", "true", worker={"replicas": 2}, runPolicy={"suspend": True}),
        space.job("never", "true", runPolicy={"suspend": True, "activeDeadlineSeconds": 1}),
    )
    _created_suspended(space, "later")
    uid = space.find("paused")["metadata"]["uid"]
    space.wait_phase("paused", "Running")
    space.change("paused", {"runPolicy": {"suspend": True}})
    status = space.wait_phase("paused", "Suspended")
    assert space.condition("paused", "Ready")["reason"] == "SuspendedByUser"
    assert "startTime" not in status
    wait_for("no pods", lambda: not space.pods("paused"))
    space.wait("paused", "no pods in the status", lambda status: status["workersReady"] == "0/2")
    first = {pod["metadata"]["uid"] for pod in space.pods_ever("paused")}
    for name in ("paused", "later"):
        space.change(name, {"runPolicy": {"suspend": False}})
    status = space.wait_phase("paused", "Running")
    assert (status["restarts"], status["preemptions"]) == (0, 0)
    assert not first & {pod["metadata"]["uid"] for pod in space.pods("paused").values()}
    space.release("paused-worker-0", "paused-worker-1")
    space.wait_phase("paused", "Succeeded")
    assert space.find("paused")["metadata"]["uid"] == uid
    events = space.events("paused")
    assert (events.count("Suspended"), events.count("Resumed")) == (1, 1)
    space.wait_phase("later", "Succeeded")
    assert space.status("later")["attempt"] == 1
    # The deadline's clock stands still while a job is suspended.
    assert space.status("never")["phase"] == "Suspended"


def _created_suspended(space: Space, name: str) -> None:
    status = space.wait_phase(name, "Suspended")
    assert "startTime" not in status
    assert not space.pods_ever(name)
    assert f"{name}-mpi" not in space.secrets()
