"""MultiKueue: a job that one cluster's queue dispatches runs in another cluster, which can be lost."""

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.kubelet import Kubelet
from cli.program import Result, run
from queues.conftest import Cluster
from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import is_ready, make_namespace
from support.job_driver import NODE
from support.kueue.controller import EXTERNAL_FRAMEWORK, SYSTEM
from support.kueue.queues import API, Queue, QueuedJob, used_cpu

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
NAMESPACE = "team"


@pytest.fixture(scope="module")
def workers(make_cluster: Callable[..., Cluster]) -> dict[str, Cluster]:
    """The clusters that run the jobs."""
    made = {name: make_cluster(name) for name in ("one", "two")}
    for cluster in made.values():
        make_namespace(cluster.api, NAMESPACE)
        Queue(cluster.api, NAMESPACE, 2)
    return made


@pytest.fixture(scope="module")
def queue(make_cluster: Callable[..., Cluster], workers: dict[str, Cluster]) -> Queue:
    """The queue of the manager, whose jobs run in the other clusters."""
    framework = {"gcInterval": "2s", "workerLostTimeout": "3s", "externalFrameworks": [{"name": EXTERNAL_FRAMEWORK}]}
    # MultiKueue connects to no cluster that lacks a kind of these.
    integrations = {"frameworks": ["batch/job", "pod"], "externalFrameworks": [EXTERNAL_FRAMEWORK]}
    api = make_cluster("manager", multiKueue=framework, integrations=integrations).api
    make_namespace(api, NAMESPACE)
    allow_dispatch(api)
    queue = Queue(api, NAMESPACE, 2)
    for name, cluster in workers.items():
        kubeconfig = base64.b64encode(Path(cluster.control_plane.kubeconfig).read_bytes()).decode()
        secret = {"metadata": {"name": name}, "data": {"kubeconfig": kubeconfig}}
        api.create(f"/api/v1/namespaces/{SYSTEM}/secrets", secret)
        source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
        queue.put("multikueueclusters", "MultiKueueCluster", name, {"clusterSource": source})
    queue.put("multikueueconfigs", "MultiKueueConfig", "all", {"clusters": [*workers]})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    check = {"controllerName": MULTIKUEUE, "parameters": parameters}
    queue.put("admissionchecks", "AdmissionCheck", "dispatch", check)
    for path in ("multikueueclusters/one", "multikueueclusters/two", "admissionchecks/dispatch"):
        wait_for(f"{path} to be active", lambda: is_active(api.get(f"{API}/{path}")))  # noqa: B023
    queue.change(admissionChecksStrategy={"admissionChecks": [{"name": "dispatch"}]})
    return queue


def allow_dispatch(api: Api) -> None:
    """The rights on HorovodJobs that Kueue needs in the cluster that dispatches them."""
    rules = [
        {"apiGroups": ["horovodjob.dev"], "resources": ["horovodjobs"], "verbs": ["get", "list", "watch", "update"]},
        {"apiGroups": ["horovodjob.dev"], "resources": ["horovodjobs/status"], "verbs": ["get", "update", "patch"]},
    ]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kueue-horovodjobs"
    api.patch(path, {"rules": rules})


def is_active(found: Object) -> bool:
    """Whether the condition Active is True."""
    conditions = found.get("status", {}).get("conditions", ())
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)


def place_of(job: QueuedJob, workers: dict[str, Cluster]) -> tuple[str, QueuedJob]:
    """The cluster that runs a job, and its copy there."""
    name = wait_for("a cluster", lambda: job.workload.get("status", {}).get("clusterName"))
    found = wait_for("the copy of the job", lambda: workers[name].api.find(job.path))
    return name, QueuedJob(workers[name].api, NAMESPACE, job.name, found["metadata"]["uid"])


def hvj(api: Api, command: str) -> Result:
    """Runs `hvj` with access to a cluster."""
    return run(*command.split(), "--kubeconfig", str(api.kubeconfig))


def test_a_job_runs_in_another_cluster_and_its_status_and_logs_are_found(
    queue: Queue, workers: dict[str, Cluster]
) -> None:
    for cluster in workers.values():
        cluster.node.seconds = None
    queue.change(stopPolicy="Hold")
    job = queue.submit("dispatched", managedBy=MULTIKUEUE)
    logs = f"job logs -n dispatched -w {NAMESPACE}"
    wait_for("its Workload", lambda: job.workload)
    assert "waits for MultiKueue to dispatch it" in hvj(queue.api, logs).stderr
    queue.change(stopPolicy=None)
    name, copy = place_of(job, workers)
    with Kubelet(workers[name].control_plane, workers[name].api, NODE) as kubelet:
        copy.wait("Running")
        kubelet.log(NAMESPACE, copy.pods()["launcher"]["metadata"]["name"]).write("epoch 1")
        job.wait("Running")
        shown = hvj(queue.api, f"job show -n dispatched -w {NAMESPACE} -o json")
        assert (shown.data["workerCluster"], shown.data["state"]) == (name, "running")
        sentence = hvj(queue.api, f"{logs} --follow").stderr
        assert f"job dispatched runs in cluster {name}" in sentence
        (command,) = re.findall("`hvj (.*) --context CONTEXT`", sentence)
        assert "launcher | epoch 1" in hvj(workers[name].api, command).stdout
    copy.end("launcher", 0)
    assert (job.wait("Succeeded")["attempt"], job.pods()) == (1, {})
    job.wait_for_workload("Finished")
    wait_for("MultiKueue to remove the copy", lambda: workers[name].api.find(job.path) is None)
    assert f"job dispatched ran in cluster {name}" in hvj(queue.api, logs).stderr
    wait_for("the quota of both", lambda: used_cpu(queue.api, NAMESPACE) == used_cpu(workers[name].api, NAMESPACE) == 0)


def test_a_job_of_a_lost_cluster_is_queued_and_runs_in_another_one(queue: Queue, workers: dict[str, Cluster]) -> None:
    for cluster in workers.values():
        cluster.node.seconds = None
    job = queue.submit("lost", managedBy=MULTIKUEUE)
    name, copy = place_of(job, workers)
    copy.wait_for_pods()
    (other,) = set(workers) - {name}
    workers[other].node.seconds = 0.3
    workers[name].control_plane.stop_apiserver()
    wait_for("the other cluster", lambda: job.workload.get("status", {}).get("clusterName") == other)
    job.wait("Succeeded")
    workers[name].control_plane.restart_apiserver()
    wait_for("the API server", lambda: is_ready(workers[name].api))
    wait_for("the copy to be removed", lambda: workers[name].api.find(job.path) is None)
    apis = (queue.api, *(cluster.api for cluster in workers.values()))
    wait_for("the quota of all", lambda: {used_cpu(api, NAMESPACE) for api in apis} == {0})
