"""Pods that no watch has reported, with components of the operator and a real API server."""

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta

from horovodjob.api.job import Metadata
from horovodjob_operator.controller.children.plan_executor import PlanExecutor
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.jobs.job_state import new_job_state
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.domain.job_defaults import JobDefaults, NamespaceDefaults
from horovodjob_operator.kube.pod_cache import PodCache
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.kueue.workload_reconciler import WorkloadReconciler
from support.job_driver import NODE, Job
from support.operator_process import Operator


def reconciler_of(client: ApiClient, clock: Callable[[], datetime], pods: PodCache) -> Reconciler:
    """A reconciler that writes with this client."""
    writer, reader = Writer(client, "test"), Reader(client)
    line = QuotaLine(JobStore(), pods, reader, clock)
    executor = PlanExecutor(pods, writer, reader, clock, line)
    workloads = WorkloadReconciler(WorkloadCache(), KueueApi(client))
    return Reconciler(pods, writer, reader, clock, workloads, executor, line)


async def test_a_pod_that_no_watch_has_reported_is_cached_as_it_is(
    submit_job: Callable[..., Job], operator_process: Operator, connection: ApiClient
) -> None:
    job = submit_job()
    job.wait("Queued")
    job.wait_for_pods()
    operator_process.kill()
    job.schedule()
    pods, minutes, raw = PodCache(), itertools.count(1), job.get()
    reconciler = reconciler_of(connection, lambda: now() + timedelta(minutes=next(minutes)), pods)
    state = new_job_state(raw, Metadata.model_validate(raw["metadata"]), NamespaceDefaults(JobDefaults()))
    for _ in range(5):
        await reconciler.reconcile(state)
    assert {pod.node for pod in pods.of_job(state.job.key).values()} == {NODE}
    assert (job.phase, job.status["attempt"]) == ("Starting", 1)
