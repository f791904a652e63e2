"""Suspending and resuming, by the commands of the quick start, which also end and delete a job."""

from __future__ import annotations

import shlex

from e2e.access import wait_for
from e2e.install import ROOT
from e2e.namespace import HELD, Namespace
from support.tutorial import page


def test_a_suspended_job_runs_again_when_it_is_resumed(namespace: Namespace) -> None:
    namespace.apply(
        namespace.job("paused", f"{HELD}; echo done", worker={"replicas": 2}),
        namespace.job("never", "true", runPolicy={"suspend": True, "activeDeadlineSeconds": 1}),
    )
    namespace.wait_phase("paused", "Running")
    uid = namespace.find("paused")["metadata"]["uid"]
    (block,) = page.blocks(ROOT / "docs" / "quickstart.md", "sh", "Suspend, resume, end")
    suspend, resume, terminate, delete = block.splitlines()

    def follow(line: str, name: str) -> None:
        words = shlex.split(line.replace("-n training", f"-n {namespace.name}").replace("NAME", name))
        assert words[0] == "kubectl"
        namespace.kubectl(*words[1:])

    follow(suspend, "paused")
    namespace.wait("paused", "no pods", lambda s: s["phase"] == "Suspended" and s["workersReady"] == "0/2")
    assert namespace.condition("paused", "Ready")["reason"] == "SuspendedByUser"
    wait_for("no pods", lambda: not namespace.pods("paused"))
    first = {pod["metadata"]["uid"] for pod in namespace.pods_ever("paused")}
    follow(resume, "paused")
    status = namespace.wait_phase("paused", "Running")
    assert (status["restarts"], status["preemptions"]) == (0, 0)
    assert not first & {pod["metadata"]["uid"] for pod in namespace.pods("paused").values()}
    namespace.release("paused-worker-0", "paused-worker-1")
    namespace.wait_phase("paused", "Succeeded")
    assert namespace.find("paused")["metadata"]["uid"] == uid
    assert namespace.output("paused") == ["done", "done"]
    # The deadline of one second is long past: it does not run while a job is suspended.
    assert namespace.status("never")["phase"] == "Suspended"
    follow(terminate, "never")
    namespace.wait_phase("never", "Failed")
    follow(delete, "never")
    assert not namespace.find("never")
