"""Workers whose container has not started, and workers that the launcher cannot reach any more."""

import json
from typing import Any

import pytest

from domain.fake_cluster import World, a_job
from horovodjob.api.constants import ConditionType, Phase, Reason, Role
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


def launched(**spec: Any) -> World:
    world = World(a_job(**spec))
    world.launch()
    return world


def fail(world: World, *unreachable: str, **told: str) -> None:
    """The launcher has ended, and names workers that it cannot reach."""
    told |= {"unreachable": " ".join(world.pods[name].address for name in unreachable)} if unreachable else {}
    world.end("cifar-launcher", 1, "Error", json.dumps(told) if told else "")


def deleted(world: World) -> set[str]:
    return {name for name, pod in world.pods.items() if pod.deleting}


def test_a_worker_that_the_launcher_cannot_reach_is_lost_to_the_platform_and_replaced() -> None:
    world = launched(runPolicy={"backoffLimit": 0})
    fail(world, "cifar-worker-1")
    world.wait(9)
    world.look()
    assert world.status.phase is Phase.RUNNING, "the kubelet may be about to report why"
    world.wait(1)
    world.look()
    assert (world.status.phase, world.status.restarts, world.status.preemptions) == (Phase.RESTARTING, 0, 1)
    (error,) = world.status.errors
    told = f"the launcher cannot reach worker 1 at {world.pods['cifar-worker-1'].address} on node node1"
    assert (error.reason, error.pod, error.node, error.message) == (Reason.NODE_LOST, "cifar-worker-1", "node1", told)
    assert deleted(world) == {"cifar-launcher", "cifar-worker-1"}


def test_the_next_attempt_waits_until_the_unreachable_worker_is_gone() -> None:
    world = launched()
    kept = world.pods["cifar-worker-0"].uid
    fail(world, "cifar-worker-1")
    world.wait(10)
    world.look()
    del world.pods["cifar-launcher"]
    world.wait(60)
    world.look()
    assert (world.pods["cifar-launcher"].attempt, world.pods["cifar-launcher"].hosts) == (2, "")
    world.vanish()
    world.launch()
    assert (world.status.phase, world.status.attempt, world.status.preemptions) == (Phase.RUNNING, 2, 1)
    assert world.pods["cifar-worker-0"].uid == kept


@pytest.mark.parametrize("die_after", range(5))
def test_all_unreachable_workers_are_deleted_by_an_operator_that_dies_at_any_write(die_after: int) -> None:
    world = launched()
    fail(world, "cifar-worker-0", "cifar-worker-1")
    world.wait(10)
    world.look(die_after=die_after)
    for name in deleted(world) - {"cifar-worker-0", "cifar-worker-1"}:
        del world.pods[name]
    world.look()
    assert deleted(world) >= {"cifar-worker-0", "cifar-worker-1"}
    assert (world.status.attempt, world.status.preemptions) == (2, 1)


def test_an_unreachable_worker_can_be_the_end() -> None:
    world = launched(runPolicy={"onWorkerLoss": "Fail"})
    fail(world, "cifar-worker-1")
    world.wait(10)
    world.look()
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (world.status.phase, failed.reason) == (Phase.FAILED, Reason.NODE_LOST)


def test_a_worker_that_ended_by_itself_is_not_lost_to_the_platform() -> None:
    world = launched()
    fail(world, "cifar-worker-1")
    world.wait(9)
    world.end("cifar-worker-1", 137, "OOMKilled")
    world.look()
    assert (world.status.errors[-1].reason, world.status.restarts) == (Reason.WORKER_OUT_OF_MEMORY, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ('{"unreachable": "10.9.9.9"}', "mpirun ended with exit code 1"),
        *((w, w) for w in ('{"unreachable": 5}', "[1]")),
    ],
)
def test_a_launcher_that_names_no_worker_of_the_job_has_failed(words: str, message: str) -> None:
    world = launched()
    world.end("cifar-launcher", 1, "Error", words)
    world.wait(11)
    world.look()
    error = world.status.errors[-1]
    assert (error.reason, error.message, world.status.restarts) == (Reason.RANK_FAILED, message, 1)
    assert deleted(world) == {"cifar-launcher"}


@pytest.mark.parametrize(("not_ready", "reason", "restarts"), [(True, "NodeLost", 0), (False, "SshUnavailable", 1)])
def test_a_worker_without_ssh_is_lost_to_the_platform_where_its_node_does_not_report(
    not_ready: bool, reason: str, restarts: int
) -> None:
    world = launched()
    world.change("cifar-worker-1", node_not_ready=not_ready)
    fail(world, reason="SshUnavailable", message="worker 10.0.0.2 did not answer")
    world.wait(3)
    world.look()
    assert (world.status.errors[-1].reason, world.status.restarts) == (reason, restarts)
    assert ("cifar-worker-1" in deleted(world)) == not_ready


def test_the_address_of_a_worker_whose_node_does_not_report_is_not_published() -> None:
    world = World(a_job())
    world.look()
    world.place()
    world.change("cifar-worker-1", node_not_ready=True)
    world.look()
    ready = world.status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.message == "waiting for node node1 of pod cifar-worker-1, which does not report to Kubernetes"
    assert world.pods["cifar-launcher"].hosts == ""
    world.change("cifar-worker-1", node_not_ready=False)
    world.look()
    assert world.pods["cifar-launcher"].hosts.count("slots=1") == 2


def test_ranks_of_an_elastic_job_go_on_while_a_node_does_not_report() -> None:
    world = launched(elastic={"minReplicas": 1, "maxReplicas": 3})
    world.change("cifar-worker-1", node_not_ready=True, ready=False)
    world.look()
    assert world.pods["cifar-launcher"].hosts.count("slots=1") == 2


@pytest.mark.parametrize(
    ("ready", "containers_ready", "not_ready"),
    [
        ({"status": "False"}, "True", True),
        ({"status": "True"}, "True", False),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, "True", False),
        ({"status": "False", "reason": "ContainersNotReady"}, "False", False),
    ],
    ids=["node controller", "ready", "readiness gate", "container"],
)
def test_the_node_controller_makes_a_pod_unready_without_a_reason(
    ready: dict[str, str], containers_ready: str, not_ready: bool
) -> None:
    conditions = [{"type": "Ready", **ready}, {"type": "ContainersReady", "status": containers_ready}]
    assert facts(Role.WORKER, conditions=conditions).node_not_ready is not_ready
