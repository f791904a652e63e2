"""Workers that lose their network while their processes continue: a job of Open MPI, and one of its other kind."""

from __future__ import annotations

import pytest

from e2e.access import wait_for
from e2e.faults.links import set_link
from e2e.namespace import HELD, Namespace
from e2e.programs.mpi import INSTALLED
from localcluster.settings import Cluster

NAMES = ("open4", "mpich")
RANK = f'[ "$HOROVODJOB_ATTEMPT" = 2 ] || exec sleep 3600; {HELD}; echo done'


def _wait_for_rank(namespace: Namespace, pod: str, attempt: str) -> None:
    """Waits until the pod has a rank of this attempt, and none of another."""
    wait_for(f"a rank of attempt {attempt} alone", lambda: {own for own, _ in namespace.processes(pod)} == {attempt})


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, local: Cluster, images: dict[str, str]) -> Namespace:
    """The namespace, with running jobs that have lost the network of their second worker."""
    jobs = {name: INSTALLED[name].spec() for name in NAMES}
    own = {"worker": {"replicas": 2}, "image": images["mpi"]}
    module_namespace.apply(*(module_namespace.job(name, RANK, **job, **own) for name, job in jobs.items()))
    for name in jobs:
        module_namespace.wait_phase(name, "Running")
        _wait_for_rank(module_namespace, f"{name}-worker-1", "1")
    for name in jobs:
        set_link(module_namespace, local, f"{name}-worker-1", "down")
    return module_namespace


@pytest.mark.parametrize("name", NAMES)
def test_an_unreachable_worker_is_replaced_and_does_not_count_as_a_restart(namespace: Namespace, name: str) -> None:
    near, far = f"{name}-worker-0", f"{name}-worker-1"
    status = namespace.wait(name, "another attempt", lambda status: status["attempt"] == 2)
    assert (status["restarts"], status["preemptions"]) == (0, 1)
    (error,) = status["errors"]
    assert (error["reason"], error["pod"]) == ("NodeLost", far)
    namespace.wait(name, "the second attempt", lambda status: status["phase"] == "Running")
    for pod in (near, far):
        _wait_for_rank(namespace, pod, "2")
    lives = [pod["metadata"]["name"] for pod in namespace.pods_ever(name)]
    assert (lives.count(near), lives.count(far)) == (1, 2)
    namespace.release(near, far)
    namespace.wait_phase(name, "Succeeded")
