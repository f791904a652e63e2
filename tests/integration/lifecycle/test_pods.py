"""Fields of a job that become fields of its pods."""

from collections.abc import Callable

from support.api_client import Api, Object, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}


def test_workers_of_a_spot_job_prefer_spot_nodes_and_the_launcher_never_runs_on_one(submit_job: Submit) -> None:
    specs = {role: pod["spec"] for role, pod in submit_job(spot=True).wait_for_pods().items()}
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
