"""Properties of a job and of the decisions about it, whatever happens in the cluster and wherever the operator dies."""

from dataclasses import fields
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from horovodjob.api.constants import CleanPodPolicy, ConditionType, Phase, Role
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.plan import Plan, plan_for
from support.phases import PHASES, may_follow
from unit.domain.any_course.random_cluster import RandomCluster, random_job

STEPS, RUNS = 40, 200
# These describe effects, and are none.
PARAMETERS = {"keep_workers", "secret_name", "spec_hash", "hosts", "requeue_at"}
# A condition that is True in its phase alone.
OWN_CONDITIONS = [type_ for type_ in ConditionType if type_.value in PHASES]


def has_effects(plan: Plan) -> bool:
    """Whether the plan requests anything of the API server."""
    return any(getattr(plan, each.name) for each in fields(plan) if each.name not in PARAMETERS)


def check_plan(cluster: RandomCluster) -> None:
    """The status is stable, and a plan without effects requests no reconciliation at once."""
    outcome = cluster.settled()
    plan = plan_for(cluster.context, outcome)
    if plan.requeue_at and not has_effects(plan):
        assert plan.requeue_at > cluster.now, f"{plan}, {outcome}"


def check_statuses(cluster: RandomCluster, since: int) -> None:
    """Each of the statuses that were written since then is consistent, and may follow the one before."""
    statuses = [*([None] if not since else []), *cluster.statuses[max(since - 1, 0) :]]
    for previous, status in pairwise(statuses):
        assert status is not None
        assert status.phase is not None
        old = previous.phase if previous else None
        is_refused = cluster.refusal is not None and status.phase is Phase.QUEUED
        assert status.phase is old or is_refused or may_follow(old, status.phase), f"{old} -> {status.phase}"
        if previous:
            assert status != previous
            assert status.attempt >= previous.attempt
            # A late report can show that a failure was a disruption.
            assert status.restarts + status.preemptions >= previous.restarts + previous.preemptions
        assert status.restarts <= cluster.job.spec.run_policy.backoff_limit
        check_conditions(status)
    launcher = cluster.observed.launcher
    if launcher and not launcher.is_terminating and launcher.attempt == cluster.status.attempt:
        assert len({pod.spec_hash for pod in cluster.pods.values() if not pod.is_terminating}) == 1


def check_conditions(status: HorovodJobStatus) -> None:
    true = {condition.type for condition in status.conditions if condition.status == "True"}
    for type_ in OWN_CONDITIONS:
        assert (type_ in true) == (status.phase == type_.value), f"{type_} in {status.phase}"
    assert ConditionType.READY not in true or ConditionType.RECONCILING not in true
    assert (status.completion_time is not None) == status.is_finished


def check_end(cluster: RandomCluster) -> None:
    """With pods that run to their end, the job finishes, and no worker that runs is left."""
    cluster.stale_owner_pods, cluster.refusal, cluster.kubelet_warning, cluster.autoscaler_event = (), None, None, None
    cluster.clock_skew = timedelta()
    cluster.edit_run_policy(suspend=False)
    for _ in range(8):
        cluster.reconcile(after=1000)
        cluster.remove_terminating_pods()
        for _ in range(2):
            cluster.reconcile()
            cluster.run_pods()
        cluster.reconcile()
        for pod in list(cluster.pods.values()):
            if pod.is_active and (pod.is_stopping or pod.hosts):
                cluster.end_container(pod.name, 143 if pod.is_stopping else 0, "Completed")
        cluster.reconcile()
        cluster.remove_terminating_pods()
    assert cluster.status.is_finished, cluster.status
    if cluster.job.spec.run_policy.clean_pod_policy is not CleanPodPolicy.NONE:
        assert not [pod for pod in cluster.pods.values() if pod.role is Role.WORKER and pod.is_active]


@pytest.mark.parametrize("chunk", range(4))
def test_any_course_has_consistent_statuses_plans_that_are_no_loop_and_an_end(chunk: int) -> None:
    for seed in range(chunk, RUNS, 4):
        random = Random(seed)
        cluster = RandomCluster(random_job(random), random=random)
        try:
            for _ in range(STEPS):
                since = len(cluster.statuses)
                cluster.step()
                check_plan(cluster)
                cluster.reconcile_or_die()
                check_plan(cluster)
                check_statuses(cluster, since)
            check_end(cluster)
        except AssertionError as error:
            error.add_note(f"seed {seed}, at {cluster.now}")
            raise
