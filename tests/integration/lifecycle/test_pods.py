"""Fields of a job that become fields of its pods."""

from collections.abc import Callable

import pytest

from support.api_client import Api, Object, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}


def test_workers_of_a_spot_job_prefer_spot_nodes_and_the_launcher_never_runs_on_one(submit_job: Submit) -> None:
    pods = submit_job(spot=True, pool="gpuspot").wait_for_pods()
    specs = {role: pod["spec"] for role, pod in pods.items()}
    assert specs["worker-1"]["nodeSelector"] == {"kubernetes.azure.com/agentpool": "gpuspot"}
    assert "nodeSelector" not in specs["launcher"]
    assert SPOT in specs["worker-1"]["tolerations"]
    assert SPOT not in specs["launcher"]["tolerations"]
    preferred = node_affinity(specs["worker-1"])["preferredDuringSchedulingIgnoredDuringExecution"]
    required = node_affinity(specs["launcher"])["requiredDuringSchedulingIgnoredDuringExecution"]
    # Workers prefer a node with any of the spot labels, and the launcher avoids it.
    labels = [SPOT["key"], "kubernetes.azure.com/priority", "karpenter.sh/capacity-type"]
    assert [term["preference"]["matchExpressions"] for term in preferred] == [
        [{"key": label, "operator": "In", "values": ["spot"]}] for label in labels
    ]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": label, "operator": "NotIn", "values": ["spot"]} for label in labels]


def node_affinity(spec: Object) -> Object:
    affinity: Object = spec["affinity"]["nodeAffinity"]
    return affinity


def test_a_launcher_that_hosts_ranks_is_configured_like_a_worker(submit_job: Submit) -> None:
    limits = {"limits": {"cpu": "1"}}
    spec = {"preparation": {"command": "true", "timeoutSeconds": 9}}
    job = submit_job(worker={"replicas": 2, "gpus": 2, "resources": limits}, launcher={"asWorker": True}, **spec)
    pods = job.wait_for_pods(["launcher", "worker-1"])
    for pod in pods.values():
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {"cpu": "1", "nvidia.com/gpu": "2"}
        assert container["args"][0] == "true"
        assert {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
        names = {variable["name"] for variable in container["env"]}
        assert "HOROVODJOB_PREPARATION_TIMEOUT" in names
        assert "NVIDIA_VISIBLE_DEVICES" not in names
    indices = {role: pod["metadata"]["labels"]["horovodjob.dev/replica-index"] for role, pod in pods.items()}
    assert indices == {"launcher": "0", "worker-1": "1"}


def test_all_pods_have_the_priority_class_and_a_missing_one_is_reported(submit_job: Submit, api: Api) -> None:
    job = submit_job(priorityClassName="urgent")
    message = job.wait_for_condition("Stalled", reason="InvalidSpec")
    assert "no PriorityClass with name urgent was found" in message
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7}
    api.create(classes, body)
    wait_for("the pods", lambda: len(job.pods()) == 3)
    assert {pod["spec"]["priority"] for pod in job.pods().values()} == {7}
    api.delete(f"{classes}/urgent")


@pytest.mark.parametrize("label", ["horovodjob.dev/job", "horovodjob.dev/role"])
def test_a_pod_that_loses_a_label_of_the_job_is_replaced_without_requests_that_repeat(
    submit_job: Submit, api: Api, label: str
) -> None:
    job = submit_job().advance_to("Running")
    before = job.uids()
    api.patch(f"{job.pods_path}/{job.name}-worker-0", {"metadata": {"labels": {label: None}}})
    job.wait("Restarting")
    job.skip_backoff()
    wait_for("a new pod", lambda: before["worker-0"] not in job.uids().values() and len(job.uids()) == 3)
    job.advance_to("Succeeded")


def test_orphans_of_a_job_that_a_finalizer_keeps_stay(submit_job: Submit, api: Api) -> None:
    job = submit_job()
    pods = set(job.wait_for_pods())
    api.patch(job.path, {"metadata": {"finalizers": ["example.com/export"]}})
    api.delete(job.path, {"propagationPolicy": "Orphan"})
    wait_for("the orphans", lambda: job.get()["metadata"]["finalizers"] == ["example.com/export"])
    api.patch(job.path, {"metadata": {"annotations": {"example.com/export": "done"}}})
    submit_job("beside").advance_to("Succeeded")  # meanwhile the operator has seen the change
    assert set(job.pods()) == pods
    assert [role for role, pod in job.pods().items() if "ownerReferences" in pod["metadata"]] == []
    api.patch(job.path, {"metadata": {"finalizers": None}})


def test_a_job_kept_by_a_finalizer_gives_its_nodes_back_at_its_end(submit_job: Submit, api: Api) -> None:
    job = submit_job().advance_to("Running")
    api.patch(job.path, {"metadata": {"finalizers": ["example.com/export"]}})
    api.delete(job.path)
    job.end("launcher", 0)
    wait_for("the workers to end", lambda: not [role for role in job.pods() if role.startswith("worker")])
    assert job.get()["status"]["phase"] == "Succeeded"
    api.patch(job.path, {"metadata": {"finalizers": None}})
