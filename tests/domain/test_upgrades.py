"""What one release of the operator does with jobs of another one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from domain.fake_cluster import NOON, World, a_job
from horovodjob.api.constants import CleanPodPolicy, ConditionType, Phase, Reason
from horovodjob_operator import start_scripts
from horovodjob_operator.domain import names
from horovodjob_operator.domain.events import events_between, recorded_events
from horovodjob_operator.domain.observed import Observed, Refusal, owned_pod
from horovodjob_operator.domain.plan import Plan, plan_for
from horovodjob_operator.domain.resources.pods import worker_pod
from horovodjob_operator.domain.status import next_status

UNREADABLE = Refusal(Reason.INVALID_SPEC, "spec.mpi: no", NOON + timedelta(days=36500), unreadable=True)


def running(**spec: Any) -> World:
    world = World(a_job(**spec))
    world.launch()
    return world


def made_by_another_release(world: World) -> None:
    """The job as a release with other start scripts has left it."""
    world.job = world.job.model_copy(update={"status": world.status.model_copy(update={"start_scripts": "older"})})
    for name in world.pods:
        world.change(name, secret="cifar-mpi")


def test_a_job_keeps_its_first_secret_while_the_scripts_are_the_same() -> None:
    job = running().job
    assert job.status.start_scripts == start_scripts.VERSION
    assert names.secret_name(job) == "cifar-mpi"


def test_events_of_a_job_of_release_0_1_0_are_not_derived_again() -> None:
    job = running().job
    assert recorded_events(job)
    older = job.status.model_copy(update={"start_scripts": ""})
    assert recorded_events(job.model_copy(update={"status": older})) == ()


def test_a_restart_under_another_release_replaces_the_workers_that_hold_other_keys() -> None:
    world = running()
    made_by_another_release(world)
    world.end("cifar-launcher", 1)
    world.wait(30)
    world.look()
    assert {name for name, pod in world.pods.items() if pod.deleting} == set(world.pods)
    assert (world.status.restarts, world.status.preemptions) == (1, 0)
    world.wait(30)
    finding = next_status(world.job, Observed(), now=world.now)[1]
    assert plan_for(world.job, Observed(), finding, now=world.now).secret == f"cifar-mpi-{start_scripts.VERSION}"


def test_a_worker_of_a_running_elastic_attempt_gets_the_secret_of_its_launcher() -> None:
    world = running(elastic={"minReplicas": 1, "maxReplicas": 3})
    made_by_another_release(world)
    world.scale(3)
    finding = next_status(world.job, world.observed, now=world.now)[1]
    plan = plan_for(world.job, world.observed, finding, now=world.now)
    assert (plan.create_workers, plan.delete_pods, plan.secret) == ((2,), (), "cifar-mpi")
    made = worker_pod(world.job, 2, 1, "", plan.secret)
    seen = owned_pod(made | {"metadata": made["metadata"] | {"uid": "u"}})
    assert seen
    assert seen.pod.secret == "cifar-mpi"


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.RESTARTING, Phase.TERMINATING])
def test_a_job_with_a_spec_that_cannot_be_read_is_stalled_and_left_alone(phase: Phase) -> None:
    world = running()
    if phase is Phase.RESTARTING:
        world.end("cifar-launcher", 1)
        world.wait(3)
    elif phase is Phase.TERMINATING:
        world.edit_policy(terminate=True)
    world.look()
    before = world.status
    assert before.phase is phase
    observed = replace(world.observed, refusal=UNREADABLE)
    after, finding = next_status(world.job, observed, now=world.now)
    stalled = after.condition(ConditionType.STALLED)
    assert stalled
    assert (stalled.status, stalled.message) == ("True", "spec.mpi: no")
    assert after == before.model_copy(update={"conditions": after.conditions})
    assert events_between(world.job, before, after) == ()
    assert plan_for(world.job, observed, finding, now=world.now) == Plan()
    world.job = world.job.model_copy(update={"status": after})
    assert next_status(world.job, world.observed, now=world.now)[0].condition(ConditionType.READY) == before.condition(
        ConditionType.READY
    )


def test_a_finished_job_with_a_spec_that_cannot_be_read_keeps_its_pods() -> None:
    world = running()
    world.edit_policy(clean_pod_policy=CleanPodPolicy.NONE)
    world.end("cifar-launcher", 0)
    world.look()
    unread = world.job.model_copy(update={"spec": a_job().spec})
    assert plan_for(unread, world.observed, None, now=world.now) != Plan()
    assert plan_for(unread, replace(world.observed, refusal=UNREADABLE), None, now=world.now) == Plan()
