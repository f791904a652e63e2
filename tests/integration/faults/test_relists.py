"""The pod cache during a relist, with components of the operator and a real API server."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.domain.pods.pod_facts import OwnedPod, owned_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.kube.caches.pod_cache import PodCache
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.watches.object_watch import ObjectWatch, WatchHandlers
from integration.faults.in_process_operator import cached_state, reconciler_of
from support.api_client import Api
from support.job_driver import NODE, Job, submit
from support.operator_process import Operator


async def test_a_pod_that_is_created_while_the_pods_are_listed_is_not_forgotten(
    operator_process: Operator, api: Api, namespace: str, connection: ApiClient
) -> None:
    operator_process.kill()
    job, pods, lost = submit(api, namespace), PodCache(), list[OwnedPod]()
    state = cached_state(job, JobStore())
    api.create(job.pods_path, worker_pod(state.job, 0, 1, ""))

    def seen(raw: Mapping[str, Any]) -> None:
        pods.update(raw)
        if "train-worker-1" not in pods.of_job(state.job.key):
            created = owned_pod(api.create(job.pods_path, worker_pod(state.job, 1, 1, "")))
            assert created
            pods.store(created)

    def gone(raw: Mapping[str, Any]) -> None:
        pods.delete(raw)

    def listed(uids: set[str], version: int, of: str) -> None:
        lost.extend(pods.delete_unlisted(uids, version, of))

    handlers = WatchHandlers(seen, gone, listed)
    watch = ObjectWatch(connection, job.pods_path, "pod", handlers, timeout_seconds=60, namespace=namespace)
    watching = asyncio.create_task(watch.run())
    await watch.has_listed.wait()
    watching.cancel()
    assert set(pods.of_job(state.job.key)) == {"train-worker-0", "train-worker-1"}
    assert lost == []


async def test_a_pod_that_no_watch_has_reported_is_cached_as_it_is(
    submit_job: Callable[..., Job], operator_process: Operator, connection: ApiClient
) -> None:
    job = submit_job()
    job.wait("Queued")
    job.wait_for_pods()
    operator_process.kill()
    job.schedule()
    pods, minutes = PodCache(), itertools.count(1)
    reconciler = reconciler_of(connection, lambda: now() + timedelta(minutes=next(minutes)), pods)
    state = cached_state(job, JobStore())
    for _ in range(5):
        await reconciler.reconcile(state)
    assert {pod.node for pod in pods.of_job(state.job.key).values()} == {NODE}
    assert (job.phase, job.status["attempt"]) == ("Starting", 1)
