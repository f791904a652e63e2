"""Many jobs in a queue, with kills of the operator and of Kueue: none is lost, and quota and pods belong together."""

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from queues.conftest import Cluster
from support.api_client import JOBS, Api, job, wait_for
from support.kueue.queues import (
    API,
    LAUNCHER_CPU,
    PRIORITY_LABEL,
    WORKER_CPU,
    Queue,
    used_cpu,
    wait_for_balance,
)

JOB_CPU = LAUNCHER_CPU + 2 * WORKER_CPU
KILLS = 30
# A pod that is not reported as ready in time loses its quota, which happens often on a busy machine.
STRATEGY = {"backoffBaseSeconds": 1, "backoffMaxSeconds": 2}
SHORT_WAIT = {"timeout": "5s", "recoveryTimeout": "5s", "requeuingStrategy": STRATEGY}


def submit(queue: Queue, count: int, urgent: int = 0) -> None:
    """Creates jobs of two workers; each `urgent`-th is urgent."""
    for number in range(count):
        body = queue.request(job(f"job-{number}", worker={"replicas": 2, "gpus": 0}))
        if urgent and number % urgent == urgent - 1:
            body["metadata"]["labels"][PRIORITY_LABEL] = "urgent"
        queue.api.create(JOBS.format(queue.namespace), body)


def phases(api: Api, namespace: str) -> Counter[str]:
    """The number of jobs by phase."""
    return Counter(one.get("status", {}).get("phase", "") for one in api.items(JOBS.format(namespace)))


def wait_for_success(queue: Queue, count: int, seconds: float) -> None:
    """Waits until all jobs have succeeded and hold no quota."""
    wait_for(f"{count} jobs", lambda: phases(queue.api, queue.namespace) == {"Succeeded": count}, seconds)
    wait_for_balance(queue)
    assert used_cpu(queue.api, queue.cluster_queue) == 0
    workloads = queue.api.items(f"{API}/namespaces/{queue.namespace}/workloads")
    unfinished = [
        one["metadata"]["name"]
        for one in workloads
        if not any(each["type"] == "Finished" for each in one["status"].get("conditions", ()))
    ]
    assert unfinished == []


@pytest.mark.usefixtures("check_quota")
def test_two_hundred_jobs_go_through_a_queue_with_room_for_twenty(cluster: Cluster, namespace: str) -> None:
    queue = Queue(cluster.api, namespace, *[2] * 20)
    submit(queue, 200)
    room, most = 20 * JOB_CPU, 0
    while phases(cluster.api, namespace)["Succeeded"] < 200:
        used = used_cpu(cluster.api, queue.cluster_queue)
        most = max(most, used)
        assert used <= room
        time.sleep(0.5)
    assert most == room
    wait_for_success(queue, 200, 60)


@pytest.mark.usefixtures("check_quota")
@pytest.mark.parametrize("waits_for_pods", [False, True])
def test_jobs_outlive_kills_of_operator_and_kueue(cluster: Cluster, namespace: str, waits_for_pods: bool) -> None:
    settings = cluster.kueue.settings
    cluster.kueue.restart(**settings, **({"waitForPodsReady": SHORT_WAIT} if waits_for_pods else {}))
    queue = Queue(cluster.api, namespace, *[2] * 4)
    choose = random.Random(1)
    submit(queue, 40, urgent=5)
    kills: list[Callable[[], object]] = [cluster.operator.kill, cluster.kueue.kill]
    starts: list[Callable[[], object]] = [
        cluster.operator.start,
        lambda: cluster.kueue.start(**cluster.kueue.settings),
    ]
    for killed in range(KILLS):  # noqa: B007
        if phases(cluster.api, namespace)["Succeeded"] == 40:
            break
        time.sleep(choose.uniform(0.1, 2))
        first = choose.randrange(2)
        kills[first]()
        if choose.random() < 0.3:  # both are away at once
            kills[1 - first]()
            starts[1 - first]()
        time.sleep(choose.uniform(0, 1))
        starts[first]()
    assert killed > 3
    wait_for_success(queue, 40, 300)
    cluster.kueue.restart(**settings)
