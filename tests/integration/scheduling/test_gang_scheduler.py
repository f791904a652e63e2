"""Gangs with the scheduler of Kubernetes, on nodes with GPUs whose kubelet is the test."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job, has_ended, restricted_pod
from support.operator_process import Operator

Train = Callable[..., Job]
NODES = "/api/v1/nodes"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GPU = "nvidia.com/gpu"
NAMES = ("room-1", "room-2")
TIMEOUT = 2


@pytest.fixture(scope="module", autouse=True)
def room(check_cluster_objects: None, control_plane: OperatorControlPlane, api: Api) -> Iterator[None]:
    """A scheduler, and two nodes with two GPUs each."""
    for name in NAMES:
        create_node(api, name)
    control_plane.start_scheduler()
    yield
    control_plane.stop_scheduler()
    for name in NAMES:
        api.delete(f"{NODES}/{name}")


def create_node(api: Api, name: str) -> None:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    api.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "100", GPU: "2"}
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    api.patch(f"{NODES}/{name}/status", {"status": status})


@pytest.fixture
def train(submit_job: Callable[..., Job]) -> Train:
    """Submits a gang of a launcher and three workers with a GPU each, of which the nodes have four."""

    def make(name: str, **spec: Any) -> Job:
        scheduling = {"gang": "Native", "timeoutSeconds": TIMEOUT}
        return submit_job(name, **{"worker": {"replicas": 3, "gpus": 1}, "scheduling": scheduling} | spec)

    return make


def placed(job: Job) -> set[str]:
    """The pods of a job that hold a node."""
    return {role for role, pod in job.pods().items() if pod["spec"].get("nodeName") and not has_ended(pod)}


def wait_until_placed(job: Job, workers: int = 3) -> None:
    """Waits until the launcher and this number of workers have a node, and no others."""
    wait_for(f"nodes for {job.name}", lambda: len(placed(job)) == workers + 1 and "launcher" in placed(job))


def start(job: Job) -> None:
    """Runs the pods that have a node and do not run."""
    for role in placed(job) - {"launcher"}:
        if job.pods()[role]["status"]["phase"] == "Pending":
            job.start(role)
    wait_for("the hosts", lambda: job.hosts)
    job.start("launcher")


def end(job: Job) -> None:
    """Runs a job whose pods have nodes to its end."""
    start(job)
    job.wait("Running")
    job.end("launcher", 0)
    job.wait("Succeeded")


def test_a_gang_that_does_not_fit_holds_no_node_and_runs_after_the_first(train: Train) -> None:
    first = train("first")
    wait_until_placed(first)
    start(first)
    first.wait("Running")
    second = train("second")
    wait_for("why it waits", lambda: f"Insufficient {GPU}" in second.condition("Ready").get("message", ""))
    time.sleep(2 * TIMEOUT)  # does not count before the gang has a node
    assert (placed(second), second.phase, len(second.pods())) == (set(), "Queued", 4)
    first.end("launcher", 0)
    first.wait("Succeeded")
    wait_until_placed(second)
    end(second)
    assert (second.status["attempt"], second.events()["SchedulingTimeout"]) == (1, 0)


def test_an_elastic_gang_starts_with_its_minimum_and_grows(train: Train, api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in (1, 2):
        occupy(api, pods, f"other-{number}")
    job = train("train", elastic={"minReplicas": 2, "maxReplicas": 4})
    wait_for("why it waits", lambda: f"Insufficient {GPU}" in job.condition("Ready").get("message", ""))
    assert placed(job) == set()
    api.delete(f"{pods}/other-1")
    wait_until_placed(job, workers=2)
    start(job)
    job.wait("Running")
    assert len(placed(job)) == 3
    api.delete(f"{pods}/other-2")
    wait_until_placed(job, workers=3)
    start(job)
    wait_for("the third host", lambda: job.hosts.count("\n") == 3)
    job.end("launcher", 0)
    assert job.wait("Succeeded")["attempt"] == 1


def occupy(api: Api, pods: str, name: str) -> None:
    """A pod that holds both GPUs of a node."""
    pod = restricted_pod(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "2"}}
    api.create(pods, pod)
    wait_for("its node", lambda: api.get(f"{pods}/{name}")["spec"].get("nodeName"))


def test_a_restart_keeps_its_nodes_while_another_gang_waits(train: Train, operator: Operator) -> None:
    job, lost = train("train"), "worker-1"
    wait_until_placed(job)
    start(job)
    job.wait("Running")
    before = job.uids()
    rival = train("rival")
    rival.wait_for_pods()
    operator.kill()  # the new process must find the group again
    job.delete_pod(lost)
    wait_for("the pod to be gone", lambda: lost not in job.pods())
    operator.start()
    job.skip_backoff()
    wait_for("attempt 2", lambda: job.status["attempt"] == 2)
    wait_until_placed(job)
    after = job.uids()
    kept = {"worker-0", "worker-2"}
    assert {role for role in kept if before[role] == after[role]} == kept
    assert placed(rival) == set()
    end(job)
    wait_until_placed(rival)
    end(rival)


@pytest.fixture
def urgent(api: Api) -> Iterator[str]:
    """A PriorityClass."""
    name = "urgent"
    group = "scheduling.k8s.io/v1"
    api.create(CLASSES, {"apiVersion": group, "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})
    yield name
    api.delete(f"{CLASSES}/{name}")


def test_a_gang_of_a_higher_priority_preempts_another_which_continues_after_it(train: Train, urgent: str) -> None:
    """Kubernetes 1.37 places no gang whose PodGroup has another priority than its pods."""
    ordinary = train("ordinary")
    wait_until_placed(ordinary)
    start(ordinary)
    ordinary.wait("Running")
    preferred = train("preferred", priorityClassName=urgent)
    wait_until_placed(preferred)
    end(preferred)
    ordinary.skip_backoff()
    wait_until_placed(ordinary)
    end(ordinary)
    assert ordinary.status["preemptions"] == 1
