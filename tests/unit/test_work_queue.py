"""When passes run: timers of jobs, and the resync."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import kopf
import pytest

from horovodjob.api.constants import LABEL_ATTEMPT, LABEL_JOB, LABEL_REPLICA_INDEX, LABEL_ROLE, Phase
from horovodjob_operator.controller.event_handlers import EventHandlers
from horovodjob_operator.controller.job_loader import JobLoader
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.job_store import JobStore
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.work_queue import WorkQueue
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.kube.api_client import ApiClient
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.writer import Writer
from horovodjob_operator.metrics import REGISTRY
from unit.domain.fake_cluster import FakeCluster, training_job

JOBS = 20


@pytest.fixture(params=["suspended"])
def store(request: pytest.FixtureRequest) -> JobStore:
    """Jobs that are suspended, or finished jobs, which are to be deleted in some years."""
    if request.param == "suspended":
        cluster = FakeCluster(training_job(runPolicy={"suspend": True}))
    else:
        cluster = FakeCluster(training_job(runPolicy={"ttlSecondsAfterFinished": 10**9, "cleanPodPolicy": "None"}))
        cluster.start()
        cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    store = JobStore()
    for number in range(JOBS):
        metadata = cluster.job.metadata.model_copy(update={"name": f"job-{number}", "uid": f"uid-{number}"})
        job = cluster.job.model_copy(update={"metadata": metadata})
        store.keep(JobState(job, 1))
    return store


@pytest.fixture
def pod_cache() -> PodCache:
    """No pods, which are listed."""
    pods = PodCache()
    pods.delete_unlisted(set(), 1)
    return pods


def a_day_later() -> datetime:
    return FakeCluster(training_job()).now + timedelta(days=1)


@pytest.fixture
async def passes(store: JobStore, pod_cache: PodCache) -> AsyncIterator[WorkQueue]:
    """Each job has had its first pass."""
    nowhere = ApiClient(kopf.ConnectionInfo(server="https://127.0.0.1:1"), limit=1)
    reader, writer = Reader(nowhere), Writer(nowhere, "test")
    reconciler = Reconciler(pod_cache, writer, reader, a_day_later, "")
    passes = WorkQueue(store, pod_cache, reconciler, JobLoader(store, reader, JobDefaults()))
    before = looks()
    async with contextlib.aclosing(nowhere):
        passes.open()
        while looks() < before + JOBS:
            await asyncio.sleep(0)
        yield passes
        await passes.close()


def looks() -> float:
    return REGISTRY.get_sample_value("horovodjob_operator_reconcile_duration_seconds_count") or 0


@pytest.mark.parametrize("store", ["finished"], indirect=True)
def test_the_timers_of_deleted_jobs_end(store: JobStore, pod_cache: PodCache, passes: WorkQueue) -> None:
    events = EventHandlers(store, pod_cache, passes, JobDefaults())
    assert passes.timers == JOBS
    events.job_deleted({"metadata": {"namespace": "team", "name": "job-0", "uid": "uid-0"}})
    assert passes.timers == JOBS - 1
    store.unfinished_jobs_listed({"uid-1"}, 2, "team")
    events.finished_jobs_listed({"uid-2"}, 2, "team")
    assert passes.timers == len(store.finished) == 2


def test_a_job_that_is_deleted_while_the_finished_ones_are_listed_does_not_come_back(
    store: JobStore, pod_cache: PodCache, passes: WorkQueue
) -> None:
    events, long_ago = EventHandlers(store, pod_cache, passes, JobDefaults()), "2020-01-01T00:00:00Z"
    metadata = {"namespace": "team", "name": "old", "uid": "old", "resourceVersion": "5", "creationTimestamp": long_ago}
    old = {
        "metadata": metadata,
        "spec": {},
        "status": {"phase": "Succeeded", "completionTime": long_ago, "observedGeneration": 1},
    }
    events.job_updated(old)
    assert list(store.finished_phases()) == [("team", Phase.SUCCEEDED)]
    events.job_deleted(old)
    events.job_updated(old)
    events.finished_jobs_listed({"old"}, 9, "")
    assert list(store.finished_phases()) == []


async def test_a_leader_that_follows_another_observes_changes_of_finished_jobs(
    store: JobStore, pod_cache: PodCache, passes: WorkQueue
) -> None:
    await passes.close()
    events, long_ago, before = EventHandlers(store, pod_cache, passes, JobDefaults()), "2020-01-01T00:00:00Z", looks()
    metadata = {"namespace": "team", "name": "old", "uid": "old", "resourceVersion": "5", "creationTimestamp": long_ago}
    status = {"phase": "Succeeded", "completionTime": long_ago, "observedGeneration": 1}
    store.states.clear()
    for generation in (1, 2):
        named = {"generation": generation, "uid": f"old-{generation}", "name": f"old-{generation}"}
        events.job_updated({"metadata": metadata | named, "spec": {}, "status": status})
    passes.open()
    async with asyncio.timeout(10):
        while looks() == before:
            await asyncio.sleep(0.01)
    assert looks() - before == 1


async def test_many_events_of_a_big_job_are_few_passes(store: JobStore, pod_cache: PodCache, passes: WorkQueue) -> None:
    events, pods = EventHandlers(store, pod_cache, passes, JobDefaults()), 2000
    state = store.states["team", "job-0"]
    worker = state.job.spec.worker.model_copy(update={"replicas": pods})
    state.job = state.job.model_copy(update={"spec": state.job.spec.model_copy(update={"worker": worker})})
    before = looks()
    for index in range(pods):
        labels = {LABEL_JOB: "job-0", LABEL_ROLE: "worker", LABEL_REPLICA_INDEX: str(index), LABEL_ATTEMPT: "1"}
        metadata = {"name": f"pod-{index}", "namespace": "team", "uid": f"{index}", "labels": labels}
        events.pod_updated({"metadata": metadata})
        for _ in range(3):  # a pass that can run does
            await asyncio.sleep(0)
    while passes.depth:
        await asyncio.sleep(0)
    assert before < looks() < before + pods / 10


async def test_a_resync_is_spread_over_its_interval(passes: WorkQueue) -> None:
    before = looks()
    resync = asyncio.create_task(passes.resync(JOBS / 10))
    while looks() == before:
        await asyncio.sleep(0)
    assert looks() - before < JOBS
    await resync
    while looks() < before + JOBS:
        await asyncio.sleep(0)
