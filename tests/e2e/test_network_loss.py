"""Workers that the network no longer reaches, while all their processes go on: one job for each MPI."""

from __future__ import annotations

import pytest

from cluster.settings import Cluster
from e2e.access import wait_for
from e2e.mpi import INSTALLED
from e2e.node import set_link
from e2e.space import Space

RANK = '[ "$HOROVODJOB_ATTEMPT" = 2 ] || exec sleep 3600; until [ -e /tmp/go ]; do sleep 0.1; done; echo done'


def _wait_for_rank(space: Space, pod: str, attempt: str) -> None:
    """Until the pod has a rank of this attempt, and none of another."""
    wait_for(f"a rank of attempt {attempt} alone", lambda: {own for own, _ in space.processes(pod)} == {attempt})


@pytest.fixture(scope="module")
def space(module_space: Space, local: Cluster, images: dict[str, str]) -> Space:
    """The namespace, with jobs whose ranks ran when their second worker was cut off."""
    jobs = {name: mpi.spec() | {"runPolicy": {}} for name, mpi in INSTALLED.items()}
    own = {"worker": {"replicas": 2}, "image": images["mpi"]}
    module_space.apply(*(module_space.job(name, RANK, **job, **own) for name, job in jobs.items()))
    for name in jobs:
        module_space.wait_phase(name, "Running")
        _wait_for_rank(module_space, f"{name}-worker-1", "1")
    for name in jobs:
        set_link(module_space, local, f"{name}-worker-1", "down")
    return module_space


@pytest.mark.parametrize("name", INSTALLED)
def test_an_attempt_ends_when_a_worker_cannot_be_reached_and_the_next_finds_no_old_rank(
    space: Space, local: Cluster, name: str
) -> None:
    far = f"{name}-worker-1"
    try:
        status = space.wait(name, "another attempt", lambda status: status["attempt"] == 2)
    finally:
        set_link(space, local, far, "up")
    assert status["restarts"] == 1
    space.wait(name, "the second attempt", lambda status: status["phase"] == "Running")
    _wait_for_rank(space, far, "2")
    assert len({pod["metadata"]["uid"] for pod in space.pods_ever(name) if pod["metadata"]["name"] == far}) == 1
    space.release(f"{name}-worker-0", far)
    space.wait_phase(name, "Succeeded")
