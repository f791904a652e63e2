"""Workers whose container has not started, and workers that the launcher cannot reach any more."""

from typing import Any

import pytest

from domain.worlds import World, a_job
from horovodjob.api.vocabulary import Role
from horovodjob_operator.domain.observed import Pod, owned_pod


def facts(role: Role, **status: Any) -> Pod:
    """The facts of a pod with this status."""
    labels = {"horovodjob.dev/job": "cifar", "horovodjob.dev/role": role}
    labels |= {"horovodjob.dev/replica-index": "0", "horovodjob.dev/attempt": "1"}
    metadata = {"name": f"cifar-{role}", "namespace": "team", "uid": "u", "labels": labels}
    seen = owned_pod({"metadata": metadata, "status": status})
    assert seen is not None
    return seen.pod


@pytest.mark.parametrize("sidecar", ["waiting", "running"])
def test_a_worker_is_no_host_while_init_containers_run_or_its_image_is_pulled(sidecar: str) -> None:
    def container_pending(state: str) -> bool:
        containers = [{"name": "proxy", "state": {sidecar: {}}}, {"name": "worker", "state": {state: {}}}]
        return facts(Role.WORKER, phase="Pending", containerStatuses=containers).container_pending

    world = World(a_job())
    world.look()
    world.place()
    world.change("cifar-worker-1", container_pending=container_pending("waiting"))
    world.look()
    assert world.pods["cifar-launcher"].hosts == ""
    world.change("cifar-worker-1", container_pending=container_pending("running"))
    world.look()
    assert world.pods["cifar-launcher"].hosts.count("slots=1") == 2


def test_a_new_worker_of_an_elastic_job_is_no_host_before_its_container_has_started() -> None:
    world = World(a_job(elastic={"minReplicas": 1, "maxReplicas": 3}))
    world.launch()
    world.scale(3)
    world.look()
    world.place()
    world.change("cifar-worker-2", container_pending=True)
    world.look()
    assert world.pods["cifar-launcher"].hosts.count("slots=1") == 2
    world.change("cifar-worker-2", container_pending=False)
    world.look()
    assert world.pods["cifar-launcher"].hosts.count("slots=1") == 3
