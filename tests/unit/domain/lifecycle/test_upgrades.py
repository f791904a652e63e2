"""Jobs that another release of the operator created."""

from dataclasses import replace

import pytest

from horovodjob.api.constants import CleanPodPolicy, ConditionType, Phase, Reason
from horovodjob_operator import start_scripts
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.plan import Plan, plan_for
from horovodjob_operator.domain.pods.observed import Observed, Refusal
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import UID, FakeCluster, pod_facts, running_cluster, training_job

UNREADABLE = Refusal(Reason.INVALID_SPEC, "spec.mpi: no", retry_at=None, is_unreadable=True)


def made_by_another_release(cluster: FakeCluster) -> None:
    """The pods of the job mount the Secret of an older release, with keys and start scripts."""
    for name in cluster.pods:
        cluster.update_pod(name, secret_names=("cifar-mpi",))


def test_a_restart_under_another_release_replaces_workers_with_other_keys() -> None:
    cluster = running_cluster()
    made_by_another_release(cluster)
    cluster.end_container("cifar-launcher", 1)
    cluster.reconcile(after=30)
    assert {name for name, pod in cluster.pods.items() if pod.is_terminating} == set(cluster.pods)
    assert (cluster.status.restarts, cluster.status.preemptions) == (1, 0)
    cluster.wait(30)
    outcome = next_status(JobContext(cluster.job, Observed(), cluster.now))[1]
    plan = plan_for(JobContext(cluster.job, Observed(), cluster.now), outcome)
    assert plan.secret_names == (f"horovodjob-keys-{UID}", f"horovodjob-scripts-{start_scripts.VERSION}")


def test_a_worker_of_a_running_elastic_attempt_gets_the_secret_of_its_launcher() -> None:
    cluster = running_cluster(elastic={"minReplicas": 1, "maxReplicas": 3})
    made_by_another_release(cluster)
    cluster.scale(3)
    plan = cluster.next_plan()
    assert (plan.create_workers, plan.delete_pods, plan.secret_names) == ((2,), frozenset(), ("cifar-mpi",))
    assert pod_facts(worker_pod(cluster.job, 2, 1, "", plan.secret_names)).secret_names == ("cifar-mpi",)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.RESTARTING, Phase.TERMINATING])
def test_a_job_with_an_unreadable_spec_is_stalled_and_not_changed(phase: Phase) -> None:
    cluster = running_cluster()
    if phase is Phase.RESTARTING:
        cluster.end_container("cifar-launcher", 1)
        cluster.wait(3)
    elif phase is Phase.TERMINATING:
        cluster.edit_run_policy(terminate=True)
    cluster.reconcile()
    before = cluster.status
    assert before.phase is phase
    observed = replace(cluster.observed, refusal=UNREADABLE)
    after, outcome = next_status(JobContext(cluster.job, observed, cluster.now))
    stalled = after.condition(ConditionType.STALLED)
    assert stalled
    assert (stalled.status, stalled.message) == ("True", "spec.mpi: no")
    assert after == before.model_copy(update={"conditions": after.conditions})
    assert events_between(cluster.job, before, after) == ()
    assert plan_for(JobContext(cluster.job, observed, cluster.now), outcome) == Plan()
    cluster.job = cluster.job.model_copy(update={"status": after})
    assert next_status(cluster.context)[0].condition(ConditionType.READY) == before.condition(ConditionType.READY)


def test_a_finished_job_with_an_unreadable_spec_keeps_its_pods() -> None:
    cluster = running_cluster()
    cluster.edit_run_policy(clean_pod_policy=CleanPodPolicy.NONE)
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    unread = cluster.job.model_copy(update={"spec": training_job().spec})
    assert plan_for(JobContext(unread, cluster.observed, cluster.now), None) != Plan()
    assert plan_for(JobContext(unread, replace(cluster.observed, refusal=UNREADABLE), cluster.now), None) == Plan()
