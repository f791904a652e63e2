"""Properties of the decisions about a job, whatever happens in the cluster."""

from dataclasses import fields
from random import Random

import pytest

from horovodjob_operator.domain.plan import Plan, plan_for
from horovodjob_operator.domain.status import next_status
from unit.domain.any_course.random_cluster import RandomCluster, random_job

STEPS, RUNS, CHUNKS = 40, 600, 4
# These describe effects, and are none.
PARAMETERS = {"keep_workers", "secret_name", "spec_hash", "hosts", "requeue_at"}


def has_effects(plan: Plan) -> bool:
    """Whether the plan requests anything of the API server."""
    return any(getattr(plan, each.name) for each in fields(plan) if each.name not in PARAMETERS)


def check(cluster: RandomCluster) -> None:
    """The status is stable, and a plan without effects requests no reconciliation at once."""
    outcome = cluster.settled()
    assert next_status(cluster.context)[0] == cluster.status
    plan = plan_for(cluster.context, outcome)
    if plan.requeue_at and not has_effects(plan):
        assert plan.requeue_at > cluster.now, f"{plan}, {outcome}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_plan_without_effects_requests_a_reconciliation_at_once_and_each_status_is_stable(chunk: int) -> None:
    for seed in range(chunk, RUNS, CHUNKS):
        random = Random(seed)
        cluster = RandomCluster(random_job(random), random=random)
        for number in range(STEPS):
            cluster.step()
            try:
                check(cluster)
                cluster.reconcile_or_die()
                check(cluster)
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {number}")
                raise
