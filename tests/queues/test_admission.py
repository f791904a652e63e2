"""Kueue's own admission: requests for nodes, cohorts, flavors."""

import pytest
import yaml

from localcluster.binaries.cache import Binaries
from localcluster.settings import cache_directory
from queues.conftest import Cluster
from queues.test_many_jobs import JOB_CPU
from support.api_client import Object, wait_for
from support.job_driver import timestamp
from support.kueue.queues import Queue, used_cpu, wait_for_balance

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


@pytest.mark.parametrize("is_fair", [False, True])
@pytest.mark.usefixtures("check_quota")
def test_a_cohort_lends_its_quota_and_takes_it_back(cluster: Cluster, namespace: str, is_fair: bool) -> None:
    kueue, settings = cluster.kueue, cluster.kueue.settings
    sharing = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}} if is_fair else {}
    kueue.restart(**settings, **sharing)
    cluster.node.seconds = None
    rooms = {"owner": [2] * 4, "first": [], "second": []}
    queues = [Queue(cluster.api, namespace, *workers, name=name) for name, workers in rooms.items()]
    owner, first, second = queues
    for queue in queues:
        queue.change(cohortName=namespace, preemption={"reclaimWithinCohort": "Any"})
    jobs = [first.submit(f"first-{number}") for number in range(4)]
    for job in jobs:
        job.wait("Running")
    jobs += [second.submit(f"second-{number}") for number in range(4)]
    wait_for("equal shares, or none", lambda: shares(*queues) == ([0, 2, 2] if is_fair else [0, 4, 0]))
    for job in jobs[4:]:
        job.wait_for_workload("QuotaReserved", status="True" if job.phase == "Running" else "False")
    jobs += [owner.submit(f"owner-{number}") for number in range(3)]
    for job in jobs[8:]:
        job.wait("Running")
    wait_for_balance(*queues)
    # Kueue writes the usage of a queue after that of another one, so the sum alone can be right too early.
    wait_for("the quota of the owner", lambda: shares(*queues)[0] == 3)
    for job in jobs:
        job.delete()
    wait_for_balance(*queues)
    cluster.node.seconds = 0.3
    kueue.restart(**settings)


def shares(*queues: Queue) -> list[float]:
    """How many jobs have quota of each queue."""
    return [used_cpu(queue.api, queue.cluster_queue) / JOB_CPU for queue in queues]


@pytest.mark.usefixtures("check_quota")
def test_a_job_gets_the_nodes_of_the_flavor_that_has_room(cluster: Cluster, namespace: str) -> None:
    cluster.node.seconds = None
    queue = Queue(cluster.api, namespace, 2, flavors=("spot", "lasting"))
    for flavor in ("spot", "lasting"):  # one after the other: Workloads of one second have no order
        job = queue.submit(flavor)
        job.wait("Running")
        assert job.status["queue"]["flavors"] == [f"{namespace}-{flavor}"]
        assert {pod["spec"]["nodeSelector"]["flavor"] for pod in job.pods().values()} == {flavor}
    waiting = queue.submit("waiting")
    assert "flavor" in waiting.wait_queued("Pending")
    wait_for_balance(queue)
    cluster.node.seconds = 0.3
    job.end("launcher", 0)
    waiting.wait("Succeeded")
