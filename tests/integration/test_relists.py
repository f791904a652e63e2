"""The pod cache during a relist, with components of the operator and a real API server."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from api.client import Api
from horovodjob_operator.cluster.caches import Caches
from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.cluster.pod_watch import PodWatch
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.domain.pod_facts import owned_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from integration.in_process_operator import cached_record, one_hour_later
from integration.job_driver import NODE, Job, submit
from integration.operator_process import Operator


async def test_a_pod_created_during_a_list_stays_in_the_cache(
    operator_process: Operator, api: Api, namespace: str, connection: Connection
) -> None:
    operator_process.kill()
    job, caches = submit(api, namespace), Caches()
    record = cached_record(job, caches)
    api.create(job.pods_path, worker_pod(record.job, 0, 1, ""))

    def seen(raw: Mapping[str, Any]) -> None:
        caches.pod_seen(raw)
        if "train-worker-1" not in caches.pods[record.job.key]:
            created = owned_pod(api.create(job.pods_path, worker_pod(record.job, 1, 1, "")))
            assert created
            caches.keep(created)

    def gone(raw: Mapping[str, Any]) -> None:
        caches.pod_gone(raw)

    def listed(uids: set[str], version: int, of: str) -> None:
        caches.pods_listed(uids, version, of)

    watch = PodWatch(connection, seen=seen, gone=gone, listed=listed, timeout_seconds=60, namespace=namespace)
    watching = asyncio.create_task(watch.run())
    await watch.answered.wait()
    watching.cancel()
    assert set(caches.pods[record.job.key]) == {"train-worker-0", "train-worker-1"}
    assert record.gone == {}


async def test_a_pod_that_no_watch_event_reported_is_added_to_the_cache_as_it_is(
    submit_job: Callable[..., Job], operator_process: Operator, connection: Connection
) -> None:
    job = submit_job()
    job.wait("Queued")
    job.wait_for_pods()
    operator_process.kill()
    job.schedule()
    caches = Caches()
    reconciler = Reconciler(caches, Objects(connection, "test"), one_hour_later, "")
    record = cached_record(job, caches)
    for _ in range(2):
        await reconciler.reconcile(record)
    assert {pod.node for pod in caches.pods[record.job.key].values()} == {NODE}
    assert (job.phase, job.status["attempt"]) == ("Starting", 1)
