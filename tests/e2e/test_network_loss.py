"""A worker that the network no longer reaches, while all its processes go on."""

from __future__ import annotations

import pytest

from e2e.access import wait_for
from e2e.install import Target
from e2e.space import Space, set_link

RANK = '[ "$HOROVODJOB_ATTEMPT" = 2 ] || exec sleep 3600; until [ -e /tmp/go ]; do sleep 0.1; done; echo done'


def test_an_attempt_ends_when_a_worker_cannot_be_reached_and_the_next_finds_no_old_rank(
    space: Space, target: Target
) -> None:
    if not target.local:
        pytest.skip("only the local cluster's network can be cut")
    space.apply(space.job("cut", RANK, worker={"replicas": 2}))
    space.wait_phase("cut", "Running")
    far = "cut-worker-1"
    wait_for("the far rank", lambda: "1" in {attempt for attempt, _ in space.processes(far)})
    set_link(space, target.local, far, "down")
    try:
        status = space.wait_phase("cut", "Restarting", seconds=90)
    finally:
        set_link(space, target.local, far, "up")
    assert (status["restarts"], status["attempt"]) == (1, 2)
    space.wait("cut", "the second attempt", lambda status: status["phase"] == "Running")
    wait_for("the far rank", lambda: {attempt for attempt, _ in space.processes(far)} == {"2"})
    assert len({pod["metadata"]["uid"] for pod in space.pods_ever("cut") if pod["metadata"]["name"] == far}) == 1
    space.release("cut-worker-0", far)
    space.wait_phase("cut", "Succeeded")
