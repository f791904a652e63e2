"""Pods of an attempt are all made from one spec, also where nobody has seen how it changed."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from domain.fake_cluster import World, a_job
from horovodjob.api.constants import Gang, Phase
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.table import find
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.domain.plan import plan_for

CHANGES: dict[str, dict[str, Any]] = {
    "image": {"image": "trainer:2"},
    "more workers": {"worker": {"replicas": 3, "gpus": 0}},
    "fewer workers": {"worker": {"replicas": 1, "gpus": 0}},
    "template": {"launcher": {"template": {"spec": {"hostNetwork": True}}}},
}


def begun(phase: Phase, **spec: Any) -> World:
    world = World(a_job(**spec))
    world.look()
    if phase is not Phase.QUEUED:
        world.place()
        world.look()
    if phase in (Phase.RUNNING, Phase.RESTARTING):
        world.launch()
    if phase is Phase.RESTARTING:
        world.end("cifar-launcher", 1)
        world.wait(3)
        world.look()
    assert world.status.phase is phase
    return world


def change_unseen(world: World, **spec: Any) -> None:
    """The user suspends, changes and resumes the job while no operator looks."""
    world.edit_policy(suspend=True)
    changed = a_job(**spec).spec
    world.edit(**{name: getattr(changed, name) for name in spec})
    world.edit_policy(suspend=False)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING])
@pytest.mark.parametrize("what", CHANGES)
def test_a_job_that_changed_unseen_goes_on_with_pods_of_its_new_spec_alone(phase: Phase, what: str) -> None:
    world = begun(phase)
    before, attempts = set(world.pods.values()), world.status.attempt
    world.end("cifar-worker-1", 1)
    restarts = world.status.restarts
    change_unseen(world, **CHANGES[what])
    world.wait(30)
    world.look()
    world.vanish()
    world.launch()
    assert world.status.phase is Phase.RUNNING
    assert {pod.uid for pod in world.pods.values()}.isdisjoint(pod.uid for pod in before)
    assert {pod.spec_hash for pod in world.pods.values()} == {names.spec_hash(world.job)}
    assert len(world.pods) == world.job.spec.worker.replicas + 1
    assert (world.status.restarts, world.status.preemptions) == (restarts, 0)
    assert world.status.attempt == attempts + (phase is not Phase.RESTARTING)


def test_a_change_that_nobody_saw_is_told_as_a_suspension() -> None:
    world = begun(Phase.RUNNING)
    change_unseen(world, image="trainer:2")
    seen = len(world.statuses)
    world.look()
    statuses = world.statuses[seen - 1 : seen + 2]
    assert [status.phase for status in statuses] == [Phase.RUNNING, Phase.SUSPENDED, Phase.QUEUED]
    told = [event.reason for pair in pairwise(statuses) for event in events_between(world.job, *pair)]
    assert told == ["Suspended", "Resumed"]


@pytest.mark.parametrize("writes", range(1, 4))
def test_workers_that_a_suspension_left_do_not_serve_a_changed_job(writes: int) -> None:
    world = begun(Phase.RUNNING)
    old = set(world.pods)
    world.edit_policy(suspend=True)
    world.look(die_after=writes)
    change_unseen(world, image="trainer:2")
    world.look()
    assert {name for name, pod in world.pods.items() if pod.deleting} == old


@pytest.mark.parametrize("dead", [[], ["cifar-worker-0", "cifar-worker-1"]])
def test_a_gang_that_changed_unseen_gets_a_group_of_its_new_size(dead: list[str]) -> None:
    world = begun(Phase.RUNNING, scheduling={"gang": "Volcano"})
    change_unseen(world, worker={"replicas": 3, "gpus": 0})
    for name in dead:
        del world.pods[name]
    world.look(die_after=2)
    observed = replace(world.observed, pod_group=Gang.VOLCANO)
    plan = plan_for(world.job, observed, find(world.job, observed, now=world.now), now=world.now)
    assert plan.delete_pod_groups == {Gang.VOLCANO}
    assert set(plan.delete_pods) == set(world.pods)


ELASTIC = {"elastic": {"minReplicas": 1, "maxReplicas": 4}, "worker": {"replicas": 1}}


@pytest.mark.parametrize("size", [2, 4])
def test_scaling_and_the_run_policy_leave_pods_alone(size: int) -> None:
    world = begun(Phase.RUNNING, **ELASTIC)
    before = {name: pod.uid for name, pod in world.pods.items()}
    world.edit_policy(suspend=True)
    world.edit_policy(backoff_limit=7, suspend=False)
    world.scale(size)
    world.look()
    assert before.items() <= {name: pod.uid for name, pod in world.pods.items()}.items()
    assert (world.status.attempt, len(world.pods), len({pod.spec_hash for pod in world.pods.values()})) == (
        1,
        size + 1,
        1,
    )


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default values": ({}, {"network": {"isolate": True}, "mpi": {"args": []}, "imagePullSecrets": None}),
    "order of a keyed list": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
    ),
    "a field of another release": ({}, {"unknown": 1}),
    "size of an elastic job": (ELASTIC, ELASTIC | {"worker": {"replicas": 3}}),
    "run policy": ({}, {"runPolicy": {"backoffLimit": 9, "ttlSecondsAfterFinished": 1}}),
}


@pytest.mark.parametrize("what", SAME)
def test_what_says_the_same_about_pods_has_the_same_hash(what: str) -> None:
    first, second = (names.spec_hash(a_job(**spec)) for spec in SAME[what])
    assert first == second


@pytest.mark.parametrize("what", CHANGES)
def test_what_says_something_else_about_pods_has_another_hash(what: str) -> None:
    assert names.spec_hash(a_job()) != names.spec_hash(a_job(**CHANGES[what]))


def test_defaults_of_the_settings_are_no_part_of_the_hash() -> None:
    job, defaults = a_job(), JobDefaults(shm_size="1Gi", node_selector={"a": "b"})
    other = job.model_copy(update={"spec": defaults.applied(job.spec), "stored_spec": job.spec})
    assert names.spec_hash(other) == names.spec_hash(job)


@pytest.mark.parametrize("spec_hash", ["", "another"])
def test_pods_of_another_release_are_left_alone(spec_hash: str) -> None:
    """One that had no hash yet, or that makes another one of the same spec."""
    world = begun(Phase.RUNNING, **ELASTIC)
    for name in world.pods:
        world.change(name, spec_hash=spec_hash)
    before = dict(world.pods)
    if not spec_hash:
        change_unseen(world, image="trainer:2")
    world.look()
    assert world.pods == before
    world.end("cifar-launcher", 1)
    world.wait(400)
    world.look()
    assert world.pods["cifar-worker-0"].deleting is bool(spec_hash)
