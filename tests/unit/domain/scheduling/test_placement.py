"""The nodes on which the generated pods may run."""

from typing import Any

import pytest

from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from unit.domain.fake_cluster import training_job

POOL = "kubernetes.azure.com/agentpool"
SKU = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
GPUS = {"worker": {"replicas": 2, "gpus": 1}}


def pods(**spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specs of launcher and worker."""
    job = training_job(**GPUS | spec)
    return launcher_pod(job, 0, "", "")["spec"], worker_pod(job, 0, 0, "")["spec"]


def test_both_roles_run_in_the_pool() -> None:
    launcher, worker = pods(pool="gpunp")
    assert launcher["nodeSelector"] == worker["nodeSelector"] == {POOL: "gpunp"}
    assert SKU in launcher["tolerations"]


def test_the_pool_of_a_spot_job_is_that_of_its_workers() -> None:
    launcher, worker = pods(pool="gpuspot", spot=True, nodeSelector={"disk": "ssd"})
    assert worker["nodeSelector"] == {"disk": "ssd", POOL: "gpuspot"}
    assert launcher["nodeSelector"] == {"disk": "ssd"}
    assert SKU in worker["tolerations"]
    assert SKU not in launcher["tolerations"]


def test_workers_of_a_spot_job_prefer_spot_nodes_and_the_launcher_never_runs_on_one() -> None:
    launcher, worker = pods(spot=True)
    assert SPOT in worker["tolerations"]
    assert SPOT not in launcher["tolerations"]
    preferred = worker["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    required = launcher["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # Workers prefer a node with any of the spot labels, and the launcher avoids it.
    labels = [SPOT["key"], "kubernetes.azure.com/priority", "karpenter.sh/capacity-type"]
    assert [term["preference"]["matchExpressions"] for term in preferred] == [
        [{"key": label, "operator": "In", "values": ["spot"]}] for label in labels
    ]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": label, "operator": "NotIn", "values": ["spot"]} for label in labels]


@pytest.mark.parametrize(
    ("label", "value", "kept"),
    [
        (POOL, "gpuspot", False),
        ("agentpool", "gpuspot", False),
        ("karpenter.sh/nodepool", "spot", False),
        ("karpenter.sh/capacity-type", "spot", False),
        ("kubernetes.azure.com/scalesetpriority", "spot", False),
        ("kubernetes.azure.com/priority", "spot", False),
        ("kubernetes.azure.com/priority", "regular", True),
        ("topology.kubernetes.io/zone", "eastus-1", True),
    ],
)
def test_labels_that_only_spot_nodes_can_have_are_not_required_of_the_launcher(
    label: str, value: str, kept: bool
) -> None:
    launcher, worker = pods(spot=True, nodeSelector={label: value})
    assert worker["nodeSelector"] == {label: value}
    assert launcher["nodeSelector"] == ({label: value} if kept else {})


def test_a_pool_in_the_template_of_the_launcher_is_its_own() -> None:
    template = {"spec": {"nodeSelector": {POOL: "gpunp"}}}
    launcher, worker = pods(pool="gpuspot", spot=True, launcher={"template": template})
    assert (launcher["nodeSelector"], worker["nodeSelector"]) == ({POOL: "gpunp"}, {POOL: "gpuspot"})
    assert SKU in launcher["tolerations"]


def test_a_launcher_of_a_spot_job_that_hosts_ranks_runs_on_any_regular_node_with_gpus() -> None:
    launcher, _ = pods(pool="gpuspot", spot=True, launcher={"asWorker": True})
    assert launcher["nodeSelector"] == {}
    assert SKU in launcher["tolerations"]


def test_neither_the_cluster_autoscaler_nor_karpenter_may_remove_the_node_of_a_pod() -> None:
    job = training_job()
    for pod in (launcher_pod(job, 0, "", ""), worker_pod(job, 0, 0, "")):
        annotations = pod["metadata"]["annotations"]
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
        assert annotations["karpenter.sh/do-not-disrupt"] == "true"
