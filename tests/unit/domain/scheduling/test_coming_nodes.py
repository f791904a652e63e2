"""A job that waits for nodes which an autoscaler adds, or does not add."""

from dataclasses import replace
from datetime import timedelta

import pytest

from horovodjob.api.constants import Phase
from horovodjob_operator.domain.autoscaler import AutoscalerEvent, AutoscalerReason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.table import compute_outcome
from horovodjob_operator.domain.resources.worker import worker_pod
from unit.domain.fake_cluster import NOON, FakeCluster, new_cluster, pod_facts, training_job

NO_NODE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
LAST = "cifar-worker-1"
TRIGGERED = AutoscalerEvent(
    AutoscalerReason.TRIGGERED,
    "pod triggered scale-up: [{aks-gpunp-vmss 0->2 (max: 4)}]",
    NOON + timedelta(seconds=30),
)
AT_MAXIMUM = "pod didn't trigger scale-up: 1 max node group size reached"


def waiting_job(event: AutoscalerEvent | None = None, **facts: str) -> FakeCluster:
    """A job with a timeout of a minute, and with a node for each pod but the last one."""
    cluster = new_cluster(scheduling={"timeoutSeconds": 60})
    cluster.schedule_pods(at_most=2)
    cluster.update_pod(LAST, unschedulable_message=NO_NODE, **facts)
    cluster.autoscaler_event = event
    return cluster


def test_a_job_waits_longer_than_its_timeout_for_nodes_that_are_on_their_way() -> None:
    cluster = waiting_job(TRIGGERED)
    cluster.reconcile(after=30 + 20 * 60 - 1)
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.QUEUED, 1)
    assert cluster.message == (
        f"waiting for nodes: {NO_NODE.rstrip('.')}; nodes are on their way since 12:00:30Z, and are waited for until "
        f"12:20:30Z ({TRIGGERED.message})"
    )
    cluster.reconcile(after=1)
    assert (cluster.status.errors[-1].reason, cluster.status.attempt) == ("SchedulingTimeout", 2)


def test_a_longer_timeout_of_the_job_is_kept() -> None:
    cluster = new_cluster(scheduling={"timeoutSeconds": 3600})
    cluster.update_pod(LAST, unschedulable_message=NO_NODE)
    cluster.autoscaler_event = TRIGGERED
    cluster.reconcile(after=3599)
    assert cluster.status.attempt == 1


@pytest.mark.parametrize(
    ("reason", "words", "cause"),
    [
        (AutoscalerReason.NOT_TRIGGERED, AT_MAXIMUM, ", because a node pool is at its maximum size"),
        (
            AutoscalerReason.NOT_TRIGGERED,
            "pod didn't trigger scale-up: 1 in backoff after failed scale-up",
            ", because adding one has just failed, for example because the region has no quota",
        ),
        (AutoscalerReason.FAILED, "Quota exceeded for vCPUs", ", because the quota of the region is used up"),
        (AutoscalerReason.NOT_TRIGGERED, "pod didn't trigger scale-up: 1 node(s) had untolerated taint", ""),
    ],
)
def test_a_job_without_hope_of_a_node_says_why_and_keeps_its_timeout(
    reason: AutoscalerReason, words: str, cause: str
) -> None:
    cluster = waiting_job(AutoscalerEvent(reason, words, NOON + timedelta(seconds=40)))
    cluster.reconcile(after=59)
    news = f"{NO_NODE.rstrip('.')}; the autoscaler adds no node{cause} ({words})"
    assert cluster.message == f"waiting for nodes: {news}"
    cluster.reconcile(after=1)
    assert cluster.status.attempt == 2
    assert f"({news})" in cluster.status.errors[-1].message


def test_nodes_of_a_provisioning_request_are_on_their_way_when_the_pod_is_created() -> None:
    annotations = {"autoscaling.x-k8s.io/consume-provisioning-request": "cifar-1"}
    job = training_job(worker={"replicas": 2, "gpus": 0, "template": {"metadata": {"annotations": annotations}}})
    cluster = waiting_job(provisioning_request=pod_facts(worker_pod(job, 1, 1, "")).provisioning_request)
    cluster.reconcile(after=20 * 60 - 1)
    assert cluster.status.attempt == 1
    assert cluster.message.endswith(
        "nodes are on their way since 12:00:00Z, and are waited for until 12:20:00Z (ProvisioningRequest cifar-1 is "
        "provisioned)"
    )
    cluster.autoscaler_event = AutoscalerEvent(AutoscalerReason.NOT_TRIGGERED, AT_MAXIMUM, cluster.now)
    cluster.reconcile()
    assert cluster.status.attempt == 2, "the request has expired"


@pytest.mark.parametrize("seconds", [None, 59])
def test_a_process_that_has_not_read_the_events_since_the_timeout_releases_no_nodes(seconds: int | None) -> None:
    cluster = waiting_job()
    read_at = None if seconds is None else NOON + timedelta(seconds=seconds)
    cluster.wait(61)
    observed = replace(cluster.observed, autoscaler_read_at=read_at)
    assert compute_outcome(JobContext(cluster.job, observed, cluster.now)).reason == "WaitingForNodes"
    assert compute_outcome(cluster.context).reason == "SchedulingTimeout"
    cluster.update_pod(LAST, unschedulable_message="")
    observed = replace(cluster.observed, autoscaler_read_at=None)
    outcome = compute_outcome(JobContext(cluster.job, observed, cluster.now))
    assert outcome.reason == "SchedulingTimeout", "no autoscaler acts before the scheduler has tried"


def test_pods_that_kueue_queues_a_second_time_are_named_with_the_remedy() -> None:
    cluster = new_cluster(scheduling={"timeoutSeconds": 60})
    raw = worker_pod(cluster.job, 1, 1, "")
    raw["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}, {"name": "kueue.x-k8s.io/admission"}]
    assert pod_facts(raw).has_kueue_gate
    blocked = "Scheduling is blocked due to non-empty scheduling gates"
    cluster.update_pod(LAST, has_kueue_gate=True, unschedulable_message=blocked)
    cluster.reconcile()
    assert cluster.message == (
        f"waiting for nodes: Kueue queues pod {LAST} by itself, apart from its job (scheduling gate "
        "kueue.x-k8s.io/admission): list HorovodJob.v1beta1.horovodjob.dev in integrations.externalFrameworks of "
        "Kueue's configuration"
    )
    raw["spec"]["schedulingGates"].pop()
    assert not pod_facts(raw).has_kueue_gate
