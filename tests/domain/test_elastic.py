"""Jobs whose workers come and go: worlds in, statuses, hosts and pods out."""

from dataclasses import replace
from typing import Any

import pytest

from domain.fake_cluster import World, a_job
from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason
from horovodjob.api.status import Condition
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.observed import Refusal
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.status import next_status

LAUNCHER = "cifar-launcher"


def an_elastic_job(replicas: int = 2, least: int = 1, **spec: Any) -> World:
    elastic = {"minReplicas": least, "maxReplicas": 4}
    return World(a_job(worker={"replicas": replicas, "gpus": 0}, elastic=elastic, **spec))


def hosts(world: World) -> list[str]:
    return [line.split()[0] for line in world.pods[LAUNCHER].hosts.splitlines()]


def addresses(world: World, *indices: int) -> list[str]:
    return [world.pods[f"cifar-worker-{index}"].address for index in indices]


def workers(world: World) -> set[str]:
    return set(world.pods) - {LAUNCHER}


def condition(world: World, type_: ConditionType) -> Condition:
    found = world.status.condition(type_)
    assert found is not None
    return found


@pytest.fixture
def running() -> World:
    world = an_elastic_job()
    world.launch()
    assert world.status.phase is Phase.RUNNING
    return world


def test_it_grows_while_it_runs(running: World) -> None:
    before = running.status
    running.scale(3)
    running.look()
    assert hosts(running) == addresses(running, 0, 1), "not before it has an address"
    running.place()
    running.look()
    assert hosts(running) == addresses(running, 0, 1, 2)
    assert (running.status.phase, running.status.replicas, running.status.attempt) == (Phase.RUNNING, 3, 1)
    resized = [event.note for event in events_between(running.job, before, running.status)]
    assert resized == ["worker.replicas is 3, was 2"]


def test_it_shrinks_from_its_end_and_the_ranks_hear_of_it_first(running: World) -> None:
    running.scale(1)
    finding = next_status(running.job, running.observed, now=running.now)[1]
    first = plan_for(running.job, running.observed, finding, now=running.now)
    assert (first.publish_hosts, first.delete_pods) == (True, ())
    running.look()
    assert hosts(running) == addresses(running, 0)
    assert running.pods["cifar-worker-1"].deleting
    running.vanish()
    running.look()
    assert workers(running) == {"cifar-worker-0"}
    assert (running.status.replicas, running.status.preemptions, running.status.errors) == (1, 0, ())


@pytest.mark.parametrize("how", ["deleted", "gone", "evicted"])
def test_a_worker_that_is_taken_is_replaced_at_once_and_the_ranks_go_on(running: World, how: str) -> None:
    name = "cifar-worker-1"
    if how == "evicted":
        running.change(name, phase="Failed", disruption="TerminationByKubelet", message="the node was low on memory")
    else:
        running.change(name, deleting=True)
    if how == "gone":
        running.vanish()
    running.look()
    assert hosts(running) == addresses(running, 0)
    running.vanish()
    running.look()
    assert running.pods[name].node == "", "made anew"
    running.place()
    running.look()
    assert hosts(running) == addresses(running, 0, 1)
    status = running.status
    assert (status.phase, status.attempt, status.restarts) == (Phase.RUNNING, 1, 0)
    assert [error.pod for error in status.errors] == [name]
    assert status.errors[0].reason == (Reason.EVICTED if how == "evicted" else Reason.WORKER_LOST)
    assert status.preemptions == 1


def test_a_worker_that_is_gone_right_after_it_was_seen_to_go_is_lost_once(running: World) -> None:
    running.change("cifar-worker-1", deleting=True)
    status, _ = next_status(running.job, running.observed, now=running.now)
    running.job = running.job.model_copy(update={"status": status})
    running.vanish()
    running.look()
    assert (len(running.status.errors), running.status.preemptions) == (1, 1)


def test_a_worker_whose_eviction_and_absence_are_seen_at_once_is_evicted_and_lost_once(running: World) -> None:
    pod = replace(running.pods.pop("cifar-worker-1"), disruption="EvictionByEvictionAPI", deleting=True)
    for _ in range(2):
        status, _ = next_status(running.job, replace(running.observed, gone=(pod,)), now=running.now)
        running.job = running.job.model_copy(update={"status": status})
    running.look()
    (error,) = running.status.errors
    assert (error.reason, error.pod, error.node) == (Reason.EVICTED, "cifar-worker-1", "node1")
    assert running.status.preemptions == 1


def test_the_loss_of_a_worker_is_an_event_and_an_error_once(running: World) -> None:
    before = running.status
    running.change("cifar-worker-1", deleting=True)
    for _ in range(3):
        running.look()
        running.wait(20)
    assert [error.pod for error in running.status.errors] == ["cifar-worker-1"]
    (event,) = events_between(running.job, before, running.status)
    assert (event.reason, event.warning) == (EventReason.PREEMPTED, True)
    assert "worker 1 was deleted" in event.note


def test_a_worker_that_ends_by_itself_is_replaced_after_a_growing_delay(running: World) -> None:
    for delay in (10, 20, 40):
        running.end("cifar-worker-1", 137, "OOMKilled")
        running.look()
        running.vanish()
        running.wait(delay - 1)
        running.look()
        assert workers(running) == {"cifar-worker-0"}
        running.wait(1)
        running.look()
        running.place()
        running.look()
        assert hosts(running) == addresses(running, 0, 1)
    assert {error.reason for error in running.status.errors} == {Reason.WORKER_OUT_OF_MEMORY}
    assert (running.status.phase, running.status.preemptions, running.status.restarts) == (Phase.RUNNING, 0, 0)


def test_more_losses_at_once_than_a_status_holds_settle() -> None:
    world = World(a_job(worker={"replicas": 14, "gpus": 0}, elastic={}))
    world.launch()
    for index in range(1, 14):
        world.change(f"cifar-worker-{index}", deleting=True)
    world.look()
    assert len(world.status.errors) == 10
    world.vanish()
    world.look()
    assert (world.status.phase, len(workers(world))) == (Phase.RUNNING, 14)


def test_it_starts_with_fewer_when_there_are_no_nodes_for_the_others() -> None:
    world = an_elastic_job(replicas=3, least=2)
    world.look()
    for name in ("cifar-worker-0", "cifar-worker-1", LAUNCHER):
        world.change(name, node="node1", address=f"10.1.0.{len(name)}", phase="Running")
    world.look()
    assert (world.status.phase, hosts(world)) == (Phase.QUEUED, []), "the scheduler has not looked at the third yet"
    world.change("cifar-worker-2", unschedulable="0/1 nodes are available")
    world.look()
    assert (world.status.phase, hosts(world)) == (Phase.STARTING, addresses(world, 0, 1))
    world.change(LAUNCHER, ready=True)
    world.look()
    assert world.status.phase is Phase.RUNNING
    world.change("cifar-worker-2", unschedulable="", node="node2", address="10.1.0.9", phase="Running")
    world.look()
    assert hosts(world) == addresses(world, 0, 1, 2)


def test_it_waits_for_nodes_while_it_has_fewer_than_its_least() -> None:
    world = an_elastic_job(replicas=3, least=2, scheduling={"timeoutSeconds": 60})
    world.look()
    world.change(LAUNCHER, node="node1", address="10.1.0.1")
    world.change("cifar-worker-0", node="node1", address="10.1.0.2")
    for index in (1, 2):
        world.change(f"cifar-worker-{index}", unschedulable="0/1 nodes are available")
    world.look()
    assert (world.status.phase, hosts(world)) == (Phase.QUEUED, [])
    world.wait(61)
    world.look()
    assert world.status.errors[-1].reason == Reason.SCHEDULING_TIMEOUT


@pytest.mark.parametrize(("policy", "phase"), [("Restart", Phase.RESTARTING), ("Fail", Phase.FAILED)])
def test_below_its_least_it_waits_for_the_timeout_and_not_longer(policy: str, phase: Phase) -> None:
    world = an_elastic_job(least=2, scheduling={"timeoutSeconds": 60}, runPolicy={"onWorkerLoss": policy})
    world.launch()
    world.change("cifar-worker-1", deleting=True)
    world.look()
    assert condition(world, ConditionType.PREPARED).status == "False"
    assert (
        condition(world, ConditionType.READY).message == "1 worker of the 2 that elastic.minReplicas wants: ranks wait"
    )
    world.vanish()
    world.wait(59)
    world.look()
    assert world.status.phase is Phase.RUNNING
    world.wait(2)
    world.look()
    assert (world.status.phase, world.status.errors[-1].reason) == (phase, Reason.WORKER_LOST)
    assert "scheduling.timeoutSeconds" in world.status.errors[-1].message


def test_a_worker_in_time_ends_the_wait() -> None:
    world = an_elastic_job(least=2, scheduling={"timeoutSeconds": 60})
    world.launch()
    world.change("cifar-worker-1", deleting=True)
    world.look()
    world.vanish()
    world.look()
    world.wait(50)
    world.place()
    world.look()
    world.wait(50)
    world.look()
    assert world.status.phase is Phase.RUNNING
    assert condition(world, ConditionType.PREPARED).status == "True"


def test_a_refused_worker_costs_the_others_nothing(running: World) -> None:
    running.scale(3)
    refusal = Refusal(Reason.WAITING_FOR_NODES, "exceeded quota: pods=3", running.now.replace(second=30))
    observed = replace(running.observed, refusal=refusal)
    status, finding = next_status(running.job, observed, now=running.now)
    ready = status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.message == "up to 2 ranks run on 2 workers of 3; exceeded quota: pods=3"
    plan = plan_for(running.job, observed, finding, now=running.now)
    assert (plan.delete_all_pods, plan.attempt_starts) == (False, False)
    assert plan.look_again_at == refusal.retry_at
    later = plan_for(running.job, observed, finding, now=refusal.retry_at)
    assert later.create_workers == (2,)


def test_the_launchers_end_is_the_attempts_end(running: World) -> None:
    running.end(LAUNCHER, 7)
    running.wait(3)
    running.look()
    assert (running.status.phase, running.status.exit_code, running.status.restarts) == (Phase.RESTARTING, 7, 1)
