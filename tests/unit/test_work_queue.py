"""The schedule of reconciliations: timers of jobs, and the resync."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, cast

import kopf
import pytest

from horovodjob.api.constants import LABEL_ATTEMPT, LABEL_JOB, LABEL_REPLICA_INDEX, LABEL_ROLE, Phase
from horovodjob_operator.controller.children.plan_executor import PlanExecutor
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.controller.watches.event_handlers import EventHandlers
from horovodjob_operator.controller.watches.namespace_selection import NamespaceSelection
from horovodjob_operator.controller.work_queue import WorkQueue
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.kube.pod_cache import PodCache
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.kueue.workload_reconciler import WorkloadReconciler
from horovodjob_operator.metrics import REGISTRY
from unit.domain.fake_cluster import FakeCluster, running_cluster, training_job

JOBS = 20


@pytest.fixture(params=["suspended"])
def store(request: pytest.FixtureRequest) -> JobStore:
    """Jobs that are suspended, or finished jobs, which are to be deleted in some years."""
    if request.param == "suspended":
        cluster = FakeCluster(training_job(runPolicy={"suspend": True}))
    else:
        cluster = running_cluster(runPolicy={"ttlSecondsAfterFinished": 10**9, "cleanPodPolicy": "None"})
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


def no_queues(client: ApiClient) -> WorkloadReconciler:
    return WorkloadReconciler(WorkloadCache(), KueueApi(client))


def event_handlers(store: JobStore, pods: PodCache, work_queue: WorkQueue) -> EventHandlers:
    line = QuotaLine(store, pods, Reader(cast(ApiClient, None)), one_day_later)  # No job waits for a quota.
    return EventHandlers(store, pods, work_queue, NamespaceSelection(JobDefaults()), WorkloadCache(), line)


def one_day_later() -> datetime:
    return FakeCluster(training_job()).now + timedelta(days=1)


@pytest.fixture
async def work_queue(store: JobStore, pod_cache: PodCache) -> AsyncIterator[WorkQueue]:
    """Each job has been reconciled once."""
    nowhere = ApiClient(kopf.ConnectionInfo(server="https://127.0.0.1:1"), limit=1)
    reader, writer = Reader(nowhere), Writer(nowhere, "test")
    line = QuotaLine(store, pod_cache, reader, one_day_later)
    executor = PlanExecutor(pod_cache, writer, reader, one_day_later, line)
    reconciler = Reconciler(pod_cache, writer, reader, one_day_later, no_queues(nowhere), executor, line)
    work_queue = WorkQueue(store, pod_cache, reconciler)
    before = reconciliations()
    async with contextlib.aclosing(nowhere):
        for key in tuple(store.states):
            work_queue.enqueue(key)
        while reconciliations() < before + JOBS:
            await asyncio.sleep(0)
        yield work_queue
        await work_queue.close()


def reconciliations() -> float:
    return REGISTRY.get_sample_value("horovodjob_operator_reconcile_duration_seconds_count") or 0


@pytest.mark.parametrize("store", ["finished"], indirect=True)
def test_timers_of_deleted_jobs_are_cancelled(store: JobStore, pod_cache: PodCache, work_queue: WorkQueue) -> None:
    events = event_handlers(store, pod_cache, work_queue)
    assert work_queue.timers == JOBS
    events.job_deleted({"metadata": {"namespace": "team", "name": "job-0", "uid": "uid-0"}})
    assert work_queue.timers == JOBS - 1
    store.unfinished_jobs_listed({"uid-1"}, 2, "team")
    events.finished_jobs_listed({"uid-2"}, 2, "team")
    assert work_queue.timers == len(store.finished) == 2


def finished_job(name: str, generation: int = 1) -> dict[str, Any]:
    """A job that ended long ago, in generation 1, and would be reconciled for a later one."""
    long_ago = "2020-01-01T00:00:00Z"
    metadata = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "5", "creationTimestamp": long_ago}
    status = {"phase": "Succeeded", "completionTime": long_ago, "observedGeneration": 1}
    return {"metadata": metadata | {"generation": generation}, "spec": {}, "status": status}


def test_a_job_deleted_during_a_list_of_finished_jobs_stays_deleted(
    store: JobStore, pod_cache: PodCache, work_queue: WorkQueue
) -> None:
    events, old = event_handlers(store, pod_cache, work_queue), finished_job("old")
    events.job_updated(old)
    assert list(store.finished_phases()) == [("team", Phase.SUCCEEDED)]
    events.job_deleted(old)
    events.job_updated(old)
    events.finished_jobs_listed({"old"}, 9, "")
    assert list(store.finished_phases()) == []


async def test_only_unobserved_changes_of_finished_jobs_are_reconciled(
    store: JobStore, pod_cache: PodCache, work_queue: WorkQueue
) -> None:
    events = event_handlers(store, pod_cache, work_queue)
    for generation, depth in ((1, 0), (2, 1)):
        events.job_updated(finished_job(f"old-{generation}", generation))
        assert work_queue.depth == depth


class EndlessReconciler(Reconciler):
    """Asks for the next reconciliation each time, without an event."""

    async def reconcile(self, state: JobState) -> Requeue:
        """Has no effect."""
        return Requeue(is_soon=True)


async def test_a_job_that_asks_for_itself_each_time_is_slowed_down(store: JobStore, pod_cache: PodCache) -> None:
    nowhere = ApiClient(kopf.ConnectionInfo(server="https://127.0.0.1:1"), limit=1)
    reader, writer, before = Reader(nowhere), Writer(nowhere, "test"), reconciliations()
    line = QuotaLine(store, pod_cache, reader, one_day_later)
    executor = PlanExecutor(pod_cache, writer, reader, one_day_later, line)
    endless = EndlessReconciler(pod_cache, writer, reader, one_day_later, no_queues(nowhere), executor, line)
    work_queue = WorkQueue(store, pod_cache, endless)
    async with contextlib.aclosing(nowhere):
        work_queue.enqueue(("team", "job-0"))
        await asyncio.sleep(1)
        await work_queue.close()
    assert 1 < reconciliations() - before < 10


async def test_many_events_of_a_large_job_cause_few_reconciliations(
    store: JobStore, pod_cache: PodCache, work_queue: WorkQueue
) -> None:
    events, pods = event_handlers(store, pod_cache, work_queue), 2000
    state = store.states["team", "job-0"]
    worker = state.job.spec.worker.model_copy(update={"replicas": pods})
    state.job = state.job.model_copy(update={"spec": state.job.spec.model_copy(update={"worker": worker})})
    before = reconciliations()
    for index in range(pods):
        labels = {LABEL_JOB: "job-0", LABEL_ROLE: "worker", LABEL_REPLICA_INDEX: str(index), LABEL_ATTEMPT: "1"}
        metadata = {"name": f"pod-{index}", "namespace": "team", "uid": f"{index}", "labels": labels}
        events.pod_updated({"metadata": metadata})
        for _ in range(3):  # every reconciliation that is due runs
            await asyncio.sleep(0)
    while work_queue.depth or reconciliations() == before:
        await asyncio.sleep(0)
    assert reconciliations() < before + pods / 10


async def test_a_resync_is_spread_over_its_interval(work_queue: WorkQueue) -> None:
    before = reconciliations()
    resync = asyncio.create_task(work_queue.resync(JOBS / 10))
    while reconciliations() == before:
        await asyncio.sleep(0)
    assert reconciliations() - before < JOBS
    await resync
    while reconciliations() < before + JOBS:
        await asyncio.sleep(0)
