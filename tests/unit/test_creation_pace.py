"""The pace of pod creations: a large job leaves the scheduler free for the pods of other jobs, and never stops."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.creation_pace import (
    CREATING_SECONDS,
    MAX_WAITING_FOR_SCHEDULER,
    PATIENCE_SECONDS,
    CreationPace,
)
from horovodjob_operator.domain.pod import Pod
from horovodjob_operator.domain.pod_facts import OwnedPod
from horovodjob_operator.kube.cache import PodCache
from unit.domain.fake_cluster import FakeCluster, training_job

NUMBERS = itertools.count()


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def named_job(name: str, **spec: Any) -> HorovodJob:
    job = FakeCluster(training_job(**spec)).job
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": name})})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pods() -> PodCache:
    return PodCache()


@pytest.fixture
def pace(pods: PodCache, clock: Clock) -> CreationPace:
    return CreationPace(pods, clock)


def create_pods(pace: CreationPace, pods: PodCache, job: HorovodJob, count: int) -> int:
    """Creates at most so many pods, and returns how many: fewer if the pace is exceeded."""
    for index in range(count):
        if pace.is_exceeded(job):
            return index
        pace.record(job)
        name = f"{job.metadata.name}-{next(NUMBERS)}"
        pods.store(OwnedPod(job.key, Pod(name, uid=name, role=Role.WORKER, version=1)))
    return count


def try_to_schedule(pods: PodCache, job: HorovodJob, count: int, **result: str) -> None:
    """The scheduler looks at so many pods."""
    waiting = [pod for pod in pods.of_job(job.key).values() if pod.waits_for_scheduler]
    for pod in waiting[:count]:
        pods.store(OwnedPod(job.key, replace(pod, version=2, **result)))  # type: ignore[arg-type]


def test_a_job_alone_creates_all_its_pods(pace: CreationPace, pods: PodCache) -> None:
    assert create_pods(pace, pods, named_job("big"), 1000) == 1000


@pytest.mark.parametrize("result", [{"node": "node-0"}, {"unschedulable_message": "0/3 nodes are available"}])
def test_beside_another_job_it_creates_as_many_pods_as_the_scheduler_takes(
    pace: CreationPace, pods: PodCache, result: dict[str, str]
) -> None:
    big = named_job("big")
    create_pods(pace, pods, named_job("small"), 3)
    assert create_pods(pace, pods, big, 1000) == MAX_WAITING_FOR_SCHEDULER
    try_to_schedule(pods, big, 10, **result)
    assert create_pods(pace, pods, big, 1000) == 10


def test_a_small_job_never_waits_for_a_large_one(pace: CreationPace, pods: PodCache) -> None:
    create_pods(pace, pods, named_job("big"), 1000)
    assert create_pods(pace, pods, named_job("small"), 3) == 3


def test_it_creates_the_others_when_no_other_job_creates_pods(pace: CreationPace, pods: PodCache, clock: Clock) -> None:
    create_pods(pace, pods, named_job("small"), 3)
    create_pods(pace, pods, named_job("big"), 1000)
    clock.seconds = CREATING_SECONDS + 1
    assert create_pods(pace, pods, named_job("big"), 1000) == 1000


def test_a_scheduler_that_takes_no_pod_does_not_stop_the_creation(
    pace: CreationPace, pods: PodCache, clock: Clock
) -> None:
    big, small = named_job("big"), named_job("small")
    create_pods(pace, pods, small, 3)
    create_pods(pace, pods, big, 1000)
    for clock.seconds in (1.0, 2.0, PATIENCE_SECONDS - 0.1):
        create_pods(pace, pods, small, 1)
        assert create_pods(pace, pods, big, 1000) == 0
    clock.seconds = PATIENCE_SECONDS
    assert create_pods(pace, pods, big, 1000) == 1000


def test_a_gang_is_not_limited_because_its_scheduler_waits_for_all_pods(pace: CreationPace, pods: PodCache) -> None:
    create_pods(pace, pods, named_job("small"), 3)
    assert create_pods(pace, pods, named_job("big", scheduling={"gang": "Volcano"}), 1000) == 1000


def test_a_pod_that_is_deleted_before_the_scheduler_takes_it_no_longer_counts(
    pace: CreationPace, pods: PodCache
) -> None:
    big = named_job("big")
    create_pods(pace, pods, named_job("small"), 3)
    create_pods(pace, pods, big, 1000)
    first, *others = pods.of_job(big.key).values()
    pods.change(big.key, others[:4], is_terminating=True)
    pods.delete_unlisted({pod.uid for pod in pods if pod != first}, 1)
    assert create_pods(pace, pods, big, 1000) == 5
