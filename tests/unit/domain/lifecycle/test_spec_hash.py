"""All pods of an attempt are built from one spec, even if the operator did not observe a change."""

from itertools import pairwise
from typing import Any

import pytest

from horovodjob.api.constants import Gang, Phase
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.table import compute_outcome
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.domain.plan import plan_for
from unit.domain.fake_cluster import FakeCluster, new_cluster, training_job

CHANGES: dict[str, dict[str, Any]] = {
    "image": {"image": "trainer:2"},
    "more workers": {"worker": {"replicas": 3, "gpus": 0}},
    "fewer workers": {"worker": {"replicas": 1, "gpus": 0}},
    "template": {"launcher": {"template": {"spec": {"hostNetwork": True}}}},
}


def cluster_in_phase(phase: Phase, **spec: Any) -> FakeCluster:
    cluster = new_cluster(**spec)
    if phase is not Phase.QUEUED:
        cluster.schedule_pods()
        cluster.reconcile()
    if phase in (Phase.RUNNING, Phase.RESTARTING):
        cluster.start()
    if phase is Phase.RESTARTING:
        cluster.end_container("cifar-launcher", 1)
        cluster.reconcile(after=3)
    assert cluster.status.phase is phase
    return cluster


def change_while_operator_is_down(cluster: FakeCluster, **spec: Any) -> None:
    """The user suspends, changes and resumes the job while the operator is down."""
    cluster.edit_run_policy(suspend=True)
    changed = training_job(**spec).spec
    cluster.edit_spec(**{name: getattr(changed, name) for name in spec})
    cluster.edit_run_policy(suspend=False)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING])
@pytest.mark.parametrize("what", CHANGES)
def test_a_job_changed_while_unobserved_gets_only_pods_of_its_new_spec(phase: Phase, what: str) -> None:
    cluster = cluster_in_phase(phase)
    before, attempts = set(cluster.pods.values()), cluster.status.attempt
    cluster.end_container("cifar-worker-1", 1)
    restarts = cluster.status.restarts
    change_while_operator_is_down(cluster, **CHANGES[what])
    cluster.reconcile(after=30)
    cluster.remove_terminating_pods()
    cluster.start()
    assert cluster.status.phase is Phase.RUNNING
    assert {pod.uid for pod in cluster.pods.values()}.isdisjoint(pod.uid for pod in before)
    assert {pod.spec_hash for pod in cluster.pods.values()} == {names.spec_hash(cluster.job)}
    assert len(cluster.pods) == cluster.job.spec.worker.replicas + 1
    assert (cluster.status.restarts, cluster.status.preemptions) == (restarts, 0)
    assert cluster.status.attempt == attempts + (phase is not Phase.RESTARTING)


def test_an_unobserved_change_is_reported_as_a_suspension() -> None:
    cluster = cluster_in_phase(Phase.RUNNING)
    change_while_operator_is_down(cluster, image="trainer:2")
    seen = len(cluster.statuses)
    cluster.reconcile()
    statuses = cluster.statuses[seen - 1 : seen + 2]
    assert [status.phase for status in statuses] == [Phase.RUNNING, Phase.SUSPENDED, Phase.QUEUED]
    reasons = [event.reason for pair in pairwise(statuses) for event in events_between(cluster.job, *pair)]
    assert reasons == ["Suspended", "Resumed"]


@pytest.mark.parametrize("writes", [1, 3])
def test_workers_that_remain_from_before_a_suspension_are_replaced(writes: int) -> None:
    cluster = cluster_in_phase(Phase.RUNNING)
    old = set(cluster.pods)
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile(die_after=writes)
    change_while_operator_is_down(cluster, image="trainer:2")
    cluster.reconcile()
    assert {name for name, pod in cluster.pods.items() if pod.is_terminating} == old


@pytest.mark.parametrize("dead", [[], ["cifar-worker-0", "cifar-worker-1"]])
def test_a_gang_changed_while_unobserved_gets_a_group_of_its_new_size(dead: list[str]) -> None:
    cluster = cluster_in_phase(Phase.RUNNING, scheduling={"gang": "Volcano"})
    change_while_operator_is_down(cluster, worker={"replicas": 3, "gpus": 0})
    for name in dead:
        del cluster.pods[name]
    cluster.reconcile(die_after=2)
    plan = plan_for(cluster.context, compute_outcome(cluster.context))
    assert plan.delete_pod_groups == {Gang.VOLCANO}
    assert set(plan.delete_pods) == set(cluster.pods)


OPERATOR = "horovodjob.dev/operator"
ELASTIC = {"elastic": {"minReplicas": 1, "maxReplicas": 4}, "worker": {"replicas": 1}}


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default values": ({}, {"network": {"isolate": True}, "mpi": {"args": []}, "imagePullSecrets": None}),
    "order of a keyed list": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
    ),
    "a field of another release": ({}, {"unknown": 1}),
    "size of an elastic job": (ELASTIC, ELASTIC | {"worker": {"replicas": 3}}),
    "a controller that moves to the top": ({"runPolicy": {"managedBy": OPERATOR}}, {"managedBy": OPERATOR}),
    "run policy": ({}, {"runPolicy": {"backoffLimit": 9, "ttlSecondsAfterFinished": 1}}),
}


@pytest.mark.parametrize("what", SAME)
def test_equivalent_specs_have_the_same_hash(what: str) -> None:
    first, second = (names.spec_hash(training_job(**spec)) for spec in SAME[what])
    assert first == second


def test_the_hash_does_not_depend_on_the_defaults_of_the_settings() -> None:
    job, defaults = training_job(), JobDefaults(shm_size="1Gi", node_selector={"a": "b"})
    other = job.model_copy(update={"spec": defaults.apply_to(job.spec), "stored_spec": job.spec})
    assert names.spec_hash(other) == names.spec_hash(job)


@pytest.mark.parametrize("spec_hash", ["", "another"])
def test_pods_of_another_release_are_not_replaced(spec_hash: str) -> None:
    """A release without a hash, or one with another hash of the same spec."""
    cluster = cluster_in_phase(Phase.RUNNING, **ELASTIC)
    for name in cluster.pods:
        cluster.update_pod(name, spec_hash=spec_hash)
    before = dict(cluster.pods)
    if not spec_hash:
        change_while_operator_is_down(cluster, image="trainer:2")
    cluster.reconcile()
    assert cluster.pods == before
    cluster.end_container("cifar-launcher", 1)
    cluster.reconcile(after=400)
    assert cluster.pods["cifar-worker-0"].is_terminating is bool(spec_hash)
