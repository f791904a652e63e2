"""The schedule of reconciliations: timers of jobs, and the resync."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import kopf
import pytest

from horovodjob.api.constants import LABEL_ATTEMPT, LABEL_JOB, LABEL_REPLICA_INDEX, LABEL_ROLE, Phase
from horovodjob_operator.cluster.caches import Caches, Record
from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.controller.event_handlers import EventHandlers
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.work_queue import JobLoader, WorkQueue
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.metrics import REGISTRY
from unit.domain.fake_cluster import FakeCluster, training_job

JOBS = 20


@pytest.fixture(params=["suspended"])
def caches(request: pytest.FixtureRequest) -> Caches:
    """Suspended jobs, or finished jobs with a TTL of some years."""
    if request.param == "suspended":
        cluster = FakeCluster(training_job(runPolicy={"suspend": True}))
    else:
        cluster = FakeCluster(training_job(runPolicy={"ttlSecondsAfterFinished": 10**9, "cleanPodPolicy": "None"}))
        cluster.start()
        cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    caches = Caches()
    caches.pods_listed(set(), 1)
    for number in range(JOBS):
        metadata = cluster.job.metadata.model_copy(update={"name": f"job-{number}", "uid": f"uid-{number}"})
        job = cluster.job.model_copy(update={"metadata": metadata})
        caches.jobs[job.key] = Record(job, 1)
    return caches


def one_day_later() -> datetime:
    return FakeCluster(training_job()).now + timedelta(days=1)


@pytest.fixture
async def passes(caches: Caches) -> AsyncIterator[WorkQueue]:
    """Each job has been reconciled once."""
    nowhere = Connection(kopf.ConnectionInfo(server="https://127.0.0.1:1"), limit=1)
    objects = Objects(nowhere, "test")
    passes = WorkQueue(
        caches, Reconciler(caches, objects, one_day_later, ""), JobLoader(caches, objects, JobDefaults())
    )
    before = reconciliations()
    async with contextlib.aclosing(nowhere):
        passes.open()
        while reconciliations() < before + JOBS:
            await asyncio.sleep(0)
        yield passes
        await passes.close()


def reconciliations() -> float:
    return REGISTRY.get_sample_value("horovodjob_operator_reconcile_duration_seconds_count") or 0


@pytest.mark.parametrize("caches", ["finished"], indirect=True)
def test_timers_of_deleted_jobs_are_cancelled(caches: Caches, passes: WorkQueue) -> None:
    events = EventHandlers(caches, passes, JobDefaults())
    assert passes.timers == JOBS
    events.job_gone({"metadata": {"namespace": "team", "name": "job-0", "uid": "uid-0"}})
    assert passes.timers == JOBS - 1
    caches.live_jobs_listed({"uid-1"}, 2, "team")
    events.finished_jobs_listed({"uid-2"}, 2, "team")
    assert passes.timers == len(caches.finished) == 2


def test_a_job_deleted_during_a_list_of_finished_jobs_stays_deleted(caches: Caches, passes: WorkQueue) -> None:
    events, long_ago = EventHandlers(caches, passes, JobDefaults()), "2020-01-01T00:00:00Z"
    metadata = {"namespace": "team", "name": "old", "uid": "old", "resourceVersion": "5", "creationTimestamp": long_ago}
    old = {
        "metadata": metadata,
        "spec": {},
        "status": {"phase": "Succeeded", "completionTime": long_ago, "observedGeneration": 1},
    }
    events.job_seen(old)
    assert list(caches.finished_phases()) == [("team", Phase.SUCCEEDED)]
    events.job_gone(old)
    events.job_seen(old)
    events.finished_jobs_listed({"old"}, 9, "")
    assert list(caches.finished_phases()) == []


async def test_a_new_leader_observes_changes_of_finished_jobs(caches: Caches, passes: WorkQueue) -> None:
    await passes.close()
    events, long_ago, before = EventHandlers(caches, passes, JobDefaults()), "2020-01-01T00:00:00Z", reconciliations()
    metadata = {"namespace": "team", "name": "old", "uid": "old", "resourceVersion": "5", "creationTimestamp": long_ago}
    status = {"phase": "Succeeded", "completionTime": long_ago, "observedGeneration": 1}
    caches.jobs.clear()
    for generation in (1, 2):
        named = {"generation": generation, "uid": f"old-{generation}", "name": f"old-{generation}"}
        events.job_seen({"metadata": metadata | named, "spec": {}, "status": status})
    passes.open()
    async with asyncio.timeout(10):
        while reconciliations() == before:
            await asyncio.sleep(0.01)
    assert reconciliations() - before == 1


async def test_many_events_of_a_large_job_cause_few_reconciliations(caches: Caches, passes: WorkQueue) -> None:
    events, pods = EventHandlers(caches, passes, JobDefaults()), 2000
    record = caches.jobs["team", "job-0"]
    worker = record.job.spec.worker.model_copy(update={"replicas": pods})
    record.job = record.job.model_copy(update={"spec": record.job.spec.model_copy(update={"worker": worker})})
    before = reconciliations()
    for index in range(pods):
        labels = {LABEL_JOB: "job-0", LABEL_ROLE: "worker", LABEL_REPLICA_INDEX: str(index), LABEL_ATTEMPT: "1"}
        metadata = {"name": f"pod-{index}", "namespace": "team", "uid": f"{index}", "labels": labels}
        events.pod_seen({"metadata": metadata})
        for _ in range(3):  # every reconciliation that is due runs
            await asyncio.sleep(0)
    while passes.depth:
        await asyncio.sleep(0)
    assert before < reconciliations() < before + pods / 10


async def test_a_resync_is_spread_over_its_interval(passes: WorkQueue) -> None:
    before = reconciliations()
    resync = asyncio.create_task(passes.resync(JOBS / 10))
    while reconciliations() == before:
        await asyncio.sleep(0)
    assert reconciliations() - before < JOBS
    await resync
    while reconciliations() < before + JOBS:
        await asyncio.sleep(0)
