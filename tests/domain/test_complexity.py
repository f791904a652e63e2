"""What a pass computes grows with the workers of a job, and not with their square."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from domain.fake_cluster import World, a_job
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.status import next_status

SMALL, BIG = 40, 320
ELASTIC = {"elastic": {"minReplicas": 1, "maxReplicas": BIG}}


def steps(computed: Callable[[], object]) -> int:
    """How many lines of Python are run, where each turn of a loop counts."""
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


def launched(workers: int, **spec: Any) -> World:
    world = World(a_job(worker={"replicas": workers, "gpus": 0}, **spec))
    world.launch()
    return world


def starting(workers: int) -> World:
    """All pods have a node, and half of the workers an address."""
    world = World(a_job(worker={"replicas": workers, "gpus": 0}))
    world.look()
    for number, name in enumerate(world.pods):
        world.change(name, node="n", address=f"10.0.{number}.1" if number % 2 else "")
    return world


def failed(workers: int) -> World:
    """Every worker has failed."""
    world = launched(workers)
    for name in list(world.pods):
        world.change(name, phase="Failed", reason="Evicted", disruption="Preempting")
    return world


def elastic_and_gone(workers: int) -> World:
    """Half of the workers of an elastic job are gone without having been seen to go."""
    world = launched(workers, **ELASTIC)
    world.pods = {name: pod for name, pod in world.pods.items() if pod.hosts or pod.index % 2}
    return world


@pytest.mark.parametrize("situation", [starting, launched, failed, elastic_and_gone])
def test_eight_times_the_workers_are_eight_times_the_work(situation: Callable[[int], World]) -> None:
    def work(workers: int) -> int:
        world = situation(workers)
        job, observed = world.job, world.observed

        def computed() -> None:
            status, finding = next_status(job, observed, now=world.now)
            plan_for(job.model_copy(update={"status": status}), observed, finding, now=world.now)

        return steps(computed)

    assert work(BIG) < 10 * work(SMALL)
