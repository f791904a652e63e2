"""Jobs that are deleted while they have pods."""

from __future__ import annotations

from e2e import phases
from e2e.access import wait_for
from e2e.space import Space

# Those without pods, and finished ones, are deleted in the tests on the API server.
NAMES = ("queued", "starting", "running", "restarting", "terminating")


def test_a_job_that_is_deleted_leaves_nothing_in_whatever_phase(space: Space) -> None:
    phases.apply_jobs(space, *NAMES)
    assert {f"{name}-worker-1" for name in NAMES} <= set(space.pods())
    for name in NAMES:
        space.delete(name)
    wait_for("no job", lambda: not any(space.find(name) for name in NAMES))
    phases.release_workers(space, "terminating")
    wait_for("no pods", lambda: not space.pods())
    wait_for("no secrets", lambda: not space.secrets())
