"""When passes run: timers of jobs, and the resync."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import kopf
import pytest

from domain.worlds import World, a_job
from horovodjob.api.vocabulary import LABEL_ATTEMPT, LABEL_JOB, LABEL_REPLICA_INDEX, LABEL_ROLE
from horovodjob_operator.cluster.caches import Caches, Record
from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.handlers import Events, Passes
from horovodjob_operator.metrics import REGISTRY
from horovodjob_operator.reconcile import Reconciler

JOBS = 20


@pytest.fixture
def caches() -> Caches:
    """Finished jobs, which are to be deleted in some years."""
    world = World(a_job(runPolicy={"ttlSecondsAfterFinished": 10**9, "cleanPodPolicy": "None"}))
    world.launch()
    world.end("cifar-launcher", 0)
    world.look()
    caches = Caches()
    caches.pods_listed(set(), 1)
    for number in range(JOBS):
        metadata = world.job.metadata.model_copy(update={"name": f"job-{number}", "uid": f"uid-{number}"})
        job = world.job.model_copy(update={"metadata": metadata})
        caches.jobs[job.key] = Record(job, 1)
    return caches


def a_day_later() -> datetime:
    return World(a_job()).now + timedelta(days=1)


@pytest.fixture
async def passes(caches: Caches) -> AsyncIterator[Passes]:
    """Each job has had its first pass."""
    nowhere = Connection(kopf.ConnectionInfo(server="https://127.0.0.1:1"), limit=1)
    passes = Passes(caches, Reconciler(caches, Objects(nowhere, "test"), a_day_later, ""))
    before = looks()
    async with contextlib.aclosing(nowhere):
        passes.open()
        while looks() < before + JOBS:
            await asyncio.sleep(0)
        yield passes
        await passes.close()


def looks() -> float:
    return REGISTRY.get_sample_value("horovodjob_operator_reconcile_duration_seconds_count") or 0


def test_the_timers_of_deleted_jobs_end(caches: Caches, passes: Passes) -> None:
    events = Events(caches, passes, JobDefaults())
    assert passes.timers == JOBS
    events.job_gone({"metadata": {"namespace": "team", "name": "job-0", "uid": "uid-0"}})
    assert passes.timers == JOBS - 1
    events.jobs_listed({"uid-1", "uid-2"}, "team")
    assert passes.timers == len(caches.jobs) == 2


async def test_many_events_of_a_big_job_are_few_passes(caches: Caches, passes: Passes) -> None:
    events, pods = Events(caches, passes, JobDefaults()), 2000
    record = caches.jobs["team", "job-0"]
    worker = record.job.spec.worker.model_copy(update={"replicas": pods})
    record.job = record.job.model_copy(update={"spec": record.job.spec.model_copy(update={"worker": worker})})
    before = looks()
    for index in range(pods):
        labels = {LABEL_JOB: "job-0", LABEL_ROLE: "worker", LABEL_REPLICA_INDEX: str(index), LABEL_ATTEMPT: "1"}
        metadata = {"name": f"pod-{index}", "namespace": "team", "uid": f"{index}", "labels": labels}
        events.pod_seen({"metadata": metadata})
        for _ in range(3):  # a pass that can run does
            await asyncio.sleep(0)
    while passes.depth:
        await asyncio.sleep(0)
    assert before < looks() < before + pods / 10


async def test_a_resync_is_spread_over_its_interval(passes: Passes) -> None:
    before = looks()
    resync = asyncio.create_task(passes.resync(JOBS / 10))
    while looks() == before:
        await asyncio.sleep(0)
    assert looks() - before < JOBS
    await resync
    while looks() < before + JOBS:
        await asyncio.sleep(0)
