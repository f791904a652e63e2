"""`hvj job top`: what the ranks of a job use."""

from collections.abc import Iterator

import pytest

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj
from support.api_client import Api, Object, is_served, wait_for

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "pods.metrics.k8s.io"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods"
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture
def metrics(api: Api) -> Iterator[None]:
    """The API of a metrics-server, as stored objects."""
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    names = {"plural": "pods", "singular": "pod", "kind": "PodMetrics", "listKind": "PodMetricsList"}
    spec = {"group": "metrics.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}
    api.create(DEFINITIONS, {"metadata": {"name": NAME, "annotations": approval}, "spec": spec})
    try:
        wait_for("the API of metrics", lambda: is_served(api, METRICS.format("default")))
        yield
    finally:
        api.delete(f"{DEFINITIONS}/{NAME}")
        wait_for("the end of the API of metrics", lambda: api.find(METRICS.format("default")) is None)


@pytest.fixture
def job(cluster: ClusterState, kubelet: Kubelet) -> Object:
    """A job with two workers of two GPUs each."""
    job = cluster.create(worker={"replicas": 2, "gpus": 2})
    cluster.run()
    cluster.pod(job, "launcher", node=NODE)
    for index in range(2):
        cluster.pod(job, "worker", index, node=NODE, gpus=2)
    return job


def test_the_use_of_each_pod_is_shown_with_idle_gpus(
    hvj: Hvj, cluster: ClusterState, kubelet: Kubelet, job: Object, metrics: None
) -> None:
    for name, cpu, memory in (("launcher", "12m", "20Mi"), ("worker-0", "3911000000n", "2097152Ki")):
        pod = cluster.api.get(f"{cluster.pods}/train-{name}")
        usage = {"name": "main", "usage": {"cpu": cpu, "memory": memory}}
        metadata = {"name": f"train-{name}", "labels": pod["metadata"]["labels"]}
        body = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": metadata}
        cluster.api.create(METRICS.format(cluster.namespace), {**body, "containers": [usage]})
    kubelet.answer = lambda command, stdin: (b"0, 97, 30720, 81920\n1, 0, 512, 81920\n", b"", 0)
    done = hvj("job", "top", "-n", "train", "-o", "table")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "Pod       Ranks   CPU  Memory   GPU %  GPU memory  Note",
        "--------  -----  ----  -------  -----  ----------  ----------",
        "launcher         0.01  20 MiB",
        "worker-0  0-1    3.91  2.0 GiB  97 0   30/160 GiB  GPU 1 idle",
        "worker-1  2-3                   97 0   30/160 GiB  GPU 1 idle",
    ]


def test_without_metrics_server_gpus_are_shown_with_one_warning(hvj: Hvj, kubelet: Kubelet, job: Object) -> None:
    kubelet.answer = lambda command, stdin: (b"0, 97, 30720, 81920\n1, [N/A], [N/A], [N/A]\n", b"", 0)
    done = hvj("job", "top", "-n", "train", "--query", "[].[ranks, cpu, gpuPercent]")
    assert done.data == [[None, None, None], ["0-1", None, "97 -"], ["2-3", None, "97 -"]]
    assert len(done.stderr.splitlines()) == 1
    assert "no metrics-server" in done.stderr
    kubelet.answer = lambda command, stdin: (b"", b"", 127)
    assert (
        "GPUs of 2 pods are unknown, as of train-worker-0: nvidia-smi ended" in hvj("job", "top", "-n", "train").stderr
    )


def test_a_job_without_pods_has_no_use_and_no_stacks(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    words = "error: no pod of job train is running (queued); see `hvj job show -n train`\n"
    for command in ("top", "stacks"):
        done = hvj("job", command, "-n", "train")
        assert (done.code, done.stderr) == (1, words)
