"""Suspending and resuming."""

from __future__ import annotations

from e2e.access import wait_for
from e2e.space import Space

HELD = "until [ -e /tmp/go ]; do sleep 0.1; done; echo done"


def test_a_job_is_suspended_and_the_same_job_runs_when_it_is_resumed(space: Space) -> None:
    space.apply(
        space.job("paused", HELD, worker={"replicas": 2}),
        space.job("never", "true", runPolicy={"suspend": True, "activeDeadlineSeconds": 1}),
    )
    space.wait_phase("paused", "Running")
    uid = space.find("paused")["metadata"]["uid"]
    space.change("paused", {"runPolicy": {"suspend": True}})
    space.wait("paused", "no pods", lambda s: s["phase"] == "Suspended" and s["workersReady"] == "0/2")
    assert space.condition("paused", "Ready")["reason"] == "SuspendedByUser"
    wait_for("no pods", lambda: not space.pods("paused"))
    first = {pod["metadata"]["uid"] for pod in space.pods_ever("paused")}
    space.change("paused", {"runPolicy": {"suspend": False}})
    status = space.wait_phase("paused", "Running")
    assert (status["restarts"], status["preemptions"]) == (0, 0)
    assert not first & {pod["metadata"]["uid"] for pod in space.pods("paused").values()}
    space.release("paused-worker-0", "paused-worker-1")
    space.wait_phase("paused", "Succeeded")
    assert space.find("paused")["metadata"]["uid"] == uid
    assert space.output("paused") == ["done", "done"]
    # The deadline's second is long over: its clock stands still while a job is suspended.
    assert space.status("never")["phase"] == "Suspended"
