"""Jobs that are deleted while they have pods."""

from __future__ import annotations

from e2e import phases
from e2e.access import wait_for
from e2e.namespace import Namespace

# Those without pods, and finished ones, are deleted in the tests on the API server.
NAMES = ("queued", "starting", "running", "restarting", "terminating")


def test_a_job_deleted_in_any_phase_leaves_no_objects(namespace: Namespace) -> None:
    phases.apply_jobs(namespace, *NAMES)
    assert {f"{name}-worker-1" for name in NAMES} <= set(namespace.pods())
    for name in NAMES:
        namespace.delete(name)
    wait_for("no job", lambda: not any(namespace.find(name) for name in NAMES))
    phases.release_workers(namespace, "terminating")
    wait_for("no pods", lambda: not namespace.pods())
    wait_for("no secrets", lambda: not namespace.secrets())
