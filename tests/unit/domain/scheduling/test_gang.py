"""Gang scheduling: the pod group, its deletion, and the scheduling timeout."""

from typing import Any

import pytest

from horovodjob.api.constants import Gang, Phase, Role
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pods.observed import Observed
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.pod_group import VOLCANO_API_VERSION, job_pod_group, native_version
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.domain.status import next_status
from horovodjob_operator.errors import InvalidJob
from unit.domain.fake_cluster import FakeCluster, pod_facts, training_job

GANGS = ("Native", "Volcano")
NATIVE = "scheduling.k8s.io/v1beta1"


def gang_job(gang: str = "Native", **spec: Any) -> FakeCluster:
    return FakeCluster(training_job(scheduling={"gang": gang, "timeoutSeconds": 60}, **spec))


def requests(**spec: Any) -> Any:
    return job_pod_group(training_job(scheduling={"gang": "Volcano"}, **spec), VOLCANO_API_VERSION)["spec"][
        "minResources"
    ]


def test_the_pods_of_a_job_without_a_gang_are_members_of_no_group() -> None:
    job = training_job()
    for pod in (launcher_pod(job, 1, "", ""), worker_pod(job, 0, 1, "")):
        assert {"schedulingGroup", "schedulerName"} & set(pod["spec"]) == set()


def test_the_launcher_is_a_member_like_the_workers() -> None:
    job = training_job(scheduling={"gang": "Native"})
    group = job_pod_group(job, NATIVE)
    assert (group["apiVersion"], group["metadata"]["name"]) == (NATIVE, "cifar")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}
    for pod in (launcher_pod(job, 1, "", ""), worker_pod(job, 0, 1, "")):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "cifar"}


def test_the_group_has_the_priority_of_its_pods() -> None:
    template = {"template": {"spec": {"priorityClassName": "own"}}}
    worker = {"replicas": 2, "gpus": 0, **template}
    for spec in ({"priorityClassName": "own"}, {"launcher": template, "worker": worker}):
        job = training_job(scheduling={"gang": "Native"}, **spec)
        assert job_pod_group(job, NATIVE)["spec"]["priorityClassName"] == "own"


@pytest.mark.parametrize("field", ["priorityClassName", "schedulerName"])
def test_roles_with_different_priorities_or_schedulers_cannot_be_a_gang(field: str) -> None:
    launcher = {"template": {"spec": {field: "own"}}}
    job = training_job(scheduling={"gang": "Native"}, launcher=launcher)
    with pytest.raises(InvalidJob, match=f"all have one {field}: it is own in the launcher and not set in the workers"):
        job_pod_group(job, NATIVE)


@pytest.mark.parametrize(
    ("served", "version"),
    [
        (("v1", "v1alpha2"), "scheduling.k8s.io/v1alpha2"),
        (("v1", "v1beta1", "v1alpha3"), "scheduling.k8s.io/v1beta1"),
        (("v1alpha2", "v1beta1"), "scheduling.k8s.io/v1beta1"),
        (("v1",), None),
    ],
    ids=str,
)
def test_the_newest_known_version_of_the_cluster_is_used(served: tuple[str, ...], version: str | None) -> None:
    assert native_version(served) == version


def test_a_group_of_volcano_has_a_queue_and_a_priority() -> None:
    job = training_job(scheduling={"gang": "Volcano"}, priorityClassName="urgent")
    metadata = job.metadata.model_copy(update={"annotations": {"scheduling.volcano.sh/queue-name": "vision"}})
    group = job_pod_group(job.model_copy(update={"metadata": metadata}), VOLCANO_API_VERSION)
    del group["spec"]["minResources"]
    assert group["spec"] == {"minMember": 3, "queue": "vision", "priorityClassName": "urgent"}
    for pod in (launcher_pod(job, 1, "", ""), worker_pod(job, 0, 1, "")):
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "cifar"


WORKERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nothing but the launcher's own": ({}, {"cpu": "100m", "memory": "268435456"}),
    "a launcher of many workers": ({"replicas": 1000}, {"cpu": "100m", "memory": str(2128 << 20)}),
    "fractions that add up": ({"resources": {"requests": {"cpu": "450m"}}}, {"cpu": "1", "memory": "268435456"}),
    "GPUs, which are limits": ({"gpus": 4}, {"cpu": "100m", "memory": "268435456", "nvidia.com/gpu": "8"}),
    "requests before limits": (
        {"resources": {"requests": {"cpu": "1.5"}, "limits": {"cpu": 8, "memory": "1Gi"}}},
        {"cpu": "3100m", "memory": "2415919104"},
    ),
    "other notations": (
        {"resources": {"requests": {"cpu": "1e3", "memory": "128M", "ephemeral-storage": "1k"}}},
        {"cpu": "2000100m", "memory": "524435456", "ephemeral-storage": "2000"},
    ),
    "a sidecar and an init container": (
        {
            "resources": {"requests": {"cpu": 1}},
            "template": {
                "spec": {
                    "containers": [{"name": "beside", "resources": {"requests": {"cpu": "500m"}}}],
                    "initContainers": [
                        {"name": "fetch", "resources": {"requests": {"cpu": 3, "memory": "1k"}}},
                        {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"memory": "5k"}}},
                    ],
                    "overhead": {"cpu": "1"},
                }
            },
        },
        {"cpu": "8100m", "memory": "268445456"},
    ),
    "an invalid quantity": (
        {"resources": {"requests": {"cpu": "much", "memory": "1e999999999"}}},
        {"cpu": "100m", "memory": "268435456"},
    ),
    "an invalid template": (
        {"template": {"spec": {"containers": [{"name": "beside", "resources": "x"}]}}},
        {"cpu": "100m", "memory": "268435456"},
    ),
}


@pytest.mark.parametrize("what", WORKERS)
def test_the_pod_group_of_volcano_has_the_requests_of_all_pods(what: str) -> None:
    worker, total = WORKERS[what]
    assert requests(worker={"replicas": 2, "gpus": 0, **worker}) == total


@pytest.mark.parametrize(
    ("gang", "size"), [("Native", {"schedulingPolicy": {"gang": {"minCount": 3}}}), ("Volcano", 3)]
)
def test_the_gang_of_an_elastic_job_has_its_minimum_size(gang: str, size: Any) -> None:
    job = training_job(scheduling={"gang": gang}, worker={"replicas": 8}, elastic={"minReplicas": 2})
    group = job_pod_group(job, NATIVE)
    assert size in (group["spec"], group["spec"].get("minMember"))
    assert group["spec"].get("minResources", {}).get("nvidia.com/gpu") in (None, "2")


def test_a_launcher_that_hosts_ranks_is_counted_once() -> None:
    worker, scheduling = {"replicas": 4, "gpus": 2}, {"gang": "Volcano"}
    job = training_job(worker=worker, launcher={"asWorker": True}, scheduling=scheduling)
    group = job_pod_group(job, VOLCANO_API_VERSION)
    assert group["spec"] == {"minMember": 4, "minResources": {"nvidia.com/gpu": "8"}}


@pytest.mark.parametrize("gang", GANGS)
def test_the_kind_of_group_follows_from_a_pod(gang: str) -> None:
    job = training_job(scheduling={"gang": gang})
    assert pod_facts(worker_pod(job, 0, 1, "")).gang == gang


@pytest.mark.parametrize("gang", GANGS)
def test_a_gang_without_a_scheduled_pod_has_no_timeout(gang: str) -> None:
    cluster = gang_job(gang)
    cluster.reconcile()
    cluster.reconcile(after=10_000)
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.QUEUED, 1)
    assert cluster.next_plan().requeue_at is None
    cluster.start()
    assert cluster.status.phase is Phase.RUNNING


def test_the_timeout_of_a_gang_starts_with_its_first_scheduled_pod() -> None:
    cluster = gang_job()
    cluster.reconcile()
    cluster.wait(10_000)
    cluster.schedule_pods(at_most=2)
    cluster.reconcile(after=59)
    assert cluster.status.attempt == 1
    cluster.reconcile(after=1)
    assert (cluster.status.errors[-1].reason, cluster.status.attempt) == ("SchedulingTimeout", 2)


def test_workers_that_an_attempt_keeps_are_subject_to_the_timeout() -> None:
    cluster = gang_job()
    cluster.start()
    cluster.update_pod("cifar-worker-1", is_terminating=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.reconcile(after=11)
    cluster.reconcile(after=60)
    assert [error.reason for error in cluster.status.errors] == ["WorkerLost", "SchedulingTimeout"]
    assert all(pod.is_terminating for pod in cluster.pods.values())


def test_a_new_gang_waits_until_the_pods_of_the_old_one_are_deleted() -> None:
    cluster = gang_job()
    cluster.start()
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()
    cluster.edit_run_policy(suspend=False)
    del cluster.pods["cifar-worker-1"]
    cluster.reconcile()
    assert set(cluster.pods) == {"cifar-launcher", "cifar-worker-0"}
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert len(cluster.pods) == 3


def test_a_gang_waits_for_the_pods_of_an_earlier_job_with_the_same_name() -> None:
    cluster = gang_job()
    cluster.reconcile()
    observed = Observed(stale_owner_pods=(Pod("cifar-worker-1", "old", Role.WORKER, 1),))
    plan = plan_for(JobContext(cluster.job, observed, cluster.now), next_status(cluster.context)[1])
    assert (plan.create_launcher, plan.create_workers) == (False, ())


@pytest.mark.parametrize("gang", GANGS)
@pytest.mark.parametrize("end", ["suspend", "terminate", "success"])
def test_the_group_is_deleted_with_the_pods(gang: str, end: str) -> None:
    cluster = gang_job(gang)
    cluster.start()
    if end == "success":
        cluster.end_container("cifar-launcher", 0)
    else:
        cluster.edit_run_policy(**{end: True})
    assert cluster.next_plan().delete_pod_groups == {Gang(gang)}
    cluster.reconcile()
    assert cluster.next_plan().delete_pod_groups == set()


def test_a_group_is_deleted_when_the_job_requires_another_or_none() -> None:
    cluster = gang_job("Volcano")
    cluster.start()
    cluster.edit_run_policy(suspend=True)
    cluster.edit_spec(scheduling=cluster.job.spec.scheduling.model_copy(update={"gang": Gang.NONE}))
    assert cluster.next_plan().delete_pod_groups == {Gang.VOLCANO}


def test_messages_about_nodes_precede_messages_about_the_gang() -> None:
    cluster = gang_job()
    cluster.reconcile()
    cluster.update_pod("cifar-launcher", unschedulable_message="waiting for minCount pods from a gang to be scheduled")
    cluster.update_pod(
        "cifar-worker-1", unschedulable_message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )
    cluster.reconcile()
    assert cluster.message == "waiting for nodes: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
