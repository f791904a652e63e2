"""Suspending and resuming."""

from __future__ import annotations

from e2e.access import wait_for
from e2e.namespace import Namespace

HELD = "until [ -e /tmp/go ]; do sleep 0.1; done; echo done"


def test_a_suspended_job_runs_again_when_it_is_resumed(namespace: Namespace) -> None:
    namespace.apply(
        namespace.job("paused", HELD, worker={"replicas": 2}),
        namespace.job("never", "true", runPolicy={"suspend": True, "activeDeadlineSeconds": 1}),
    )
    namespace.wait_phase("paused", "Running")
    uid = namespace.find("paused")["metadata"]["uid"]
    namespace.change("paused", {"runPolicy": {"suspend": True}})
    namespace.wait("paused", "no pods", lambda s: s["phase"] == "Suspended" and s["workersReady"] == "0/2")
    assert namespace.condition("paused", "Ready")["reason"] == "SuspendedByUser"
    wait_for("no pods", lambda: not namespace.pods("paused"))
    first = {pod["metadata"]["uid"] for pod in namespace.pods_ever("paused")}
    namespace.change("paused", {"runPolicy": {"suspend": False}})
    status = namespace.wait_phase("paused", "Running")
    assert (status["restarts"], status["preemptions"]) == (0, 0)
    assert not first & {pod["metadata"]["uid"] for pod in namespace.pods("paused").values()}
    namespace.release("paused-worker-0", "paused-worker-1")
    namespace.wait_phase("paused", "Succeeded")
    assert namespace.find("paused")["metadata"]["uid"] == uid
    assert namespace.output("paused") == ["done", "done"]
    # The deadline of one second is long past: it does not run while a job is suspended.
    assert namespace.status("never")["phase"] == "Suspended"
