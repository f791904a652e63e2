"""The computation of a reconciliation is linear in the number of workers."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import FakeCluster, new_cluster, running_cluster

SMALL, BIG = 40, 320
ELASTIC = {"elastic": {"minReplicas": 1, "maxReplicas": BIG}}


def steps(computed: Callable[[], object]) -> int:
    """The number of executed lines of Python, loop iterations included."""
    number = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal number
        number += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        computed()
    finally:
        sys.settrace(before)
    return number


def launched(workers: int, **spec: Any) -> FakeCluster:
    return running_cluster(worker={"replicas": workers, "gpus": 0}, **spec)


def starting(workers: int) -> FakeCluster:
    """All pods have a node, and half of the workers an address."""
    cluster = new_cluster(worker={"replicas": workers, "gpus": 0})
    for number, name in enumerate(cluster.pods):
        cluster.update_pod(name, node="n", address=f"10.0.{number}.1" if number % 2 else "")
    return cluster


def failed(workers: int) -> FakeCluster:
    """Every worker has failed."""
    cluster = launched(workers)
    for name in list(cluster.pods):
        cluster.update_pod(name, phase="Failed", reason="Evicted", disruption="Preempting")
    return cluster


def elastic_with_missing_workers(workers: int) -> FakeCluster:
    """Half of the workers of an elastic job are deleted without an observed deletion."""
    cluster = launched(workers, **ELASTIC)
    cluster.pods = {name: pod for name, pod in cluster.pods.items() if pod.hosts or pod.index % 2}
    return cluster


@pytest.mark.parametrize("situation", [starting, launched, failed, elastic_with_missing_workers])
def test_a_pass_takes_linear_time_in_the_number_of_workers(situation: Callable[[int], FakeCluster]) -> None:
    def work(workers: int) -> int:
        cluster = situation(workers)
        job, observed = cluster.job, cluster.observed

        def computed() -> None:
            status, outcome = next_status(JobContext(job, observed, cluster.now))
            plan_for(JobContext(job.model_copy(update={"status": status}), observed, cluster.now), outcome)

        return steps(computed)

    assert work(BIG) < 10 * work(SMALL)
