"""Kueue's own controllers of admission: requests for nodes, and fair shares of a cohort."""

import yaml

from localcluster.binaries.cache import Binaries
from localcluster.settings import cache_directory
from queues.conftest import Cluster, used_cpu, wait_for_balance
from queues.test_many_jobs import JOB_CPU
from support.api_client import Object, wait_for
from support.job_driver import timestamp
from support.kueue.queues import Queue

GROUP = "autoscaling.x-k8s.io"
DEFINITION = f"{GROUP}_provisioningrequests.yaml"
CONSUMED = f"{GROUP}/consume-provisioning-request"


def test_a_job_starts_when_the_nodes_that_kueue_has_requested_are_there(cluster: Cluster, namespace: str) -> None:
    api, kueue = cluster.api, cluster.kueue
    definition = Binaries(cache_directory()).file("kueue", DEFINITION).read_text()
    assert api.kubectl("apply", "--server-side", "-f", "-", stdin=definition).returncode == 0
    requests = f"/apis/{GROUP}/v1/namespaces/{namespace}/provisioningrequests"
    served = {version["name"] for version in yaml.safe_load(definition)["spec"]["versions"]}
    requests = requests if "v1" in served else requests.replace("/v1/", "/v1beta1/")
    wait_for("the definition", lambda: api.find(requests))
    kueue.restart(**kueue.settings)  # it looks for the definition when it starts
    queue = Queue(api, namespace, 2)
    settings = {"provisioningClassName": f"check-capacity.{GROUP}", "managedResources": ["cpu"]}
    queue.put("provisioningrequestconfigs", "ProvisioningRequestConfig", namespace, settings)
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": namespace}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    queue.put("admissionchecks", "AdmissionCheck", namespace, check)
    queue.change(admissionChecksStrategy={"admissionChecks": [{"name": namespace}]})
    job = queue.submit()
    (request,) = wait_for("the request for nodes", lambda: api.items(requests))
    assert job.pods() == {}
    conditions = [condition("Accepted"), condition("Provisioned")]
    path = f"{requests}/{request['metadata']['name']}"
    api.patch(f"{path}/status", {"status": {"conditions": conditions}})
    pods = job.wait_for_pods()
    assert {pod["metadata"]["annotations"][CONSUMED] for pod in pods.values()} == {request["metadata"]["name"]}
    job.wait("Succeeded")
    wait_for_balance(queue)


def condition(kind: str) -> Object:
    """A condition that the cluster autoscaler writes."""
    return {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": timestamp()}


def test_two_queues_of_a_cohort_share_its_quota_fairly(cluster: Cluster, namespace: str) -> None:
    kueue = cluster.kueue
    settings = kueue.settings
    kueue.restart(**settings, fairSharing={"preemptionStrategies": ["LessThanOrEqualToFinalShare"]})
    cluster.node.seconds = None
    cohort = {"cohortName": namespace, "preemption": {"reclaimWithinCohort": "Any"}}
    first, second = (Queue(cluster.api, namespace, 2, 2, name=name) for name in ("first", "second"))
    for queue in (first, second):
        queue.change(**cohort)
    borrowers = [first.submit(f"first-{number}") for number in range(4)]
    for job in borrowers:
        job.wait("Running")
    assert used_cpu(cluster.api, first.cluster_queue) == 4 * JOB_CPU
    owners = [second.submit(f"second-{number}") for number in range(4)]
    wait_for("equal shares", lambda: shares(cluster, first, second) == [2, 2])
    wait_for("the jobs", lambda: sorted(job.phase for job in owners) == ["Queued"] * 2 + ["Running"] * 2)
    wait_for("the jobs", lambda: sorted(job.phase for job in borrowers) == ["Queued"] * 2 + ["Running"] * 2)
    assert shares(cluster, first, second) == [2, 2]
    for job in (*owners, *borrowers):
        job.delete()
    wait_for("the quota to be free", lambda: shares(cluster, first, second) == [0, 0])
    cluster.node.seconds = 0.3
    kueue.restart(**settings)


def shares(cluster: Cluster, *queues: Queue) -> list[float]:
    """How many jobs have quota of each queue."""
    return [used_cpu(cluster.api, queue.cluster_queue) / JOB_CPU for queue in queues]
