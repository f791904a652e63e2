"""Components of the operator in the process of a test, which controls their cache and their clock."""

from collections.abc import Callable
from datetime import datetime, timedelta

from horovodjob.api.job import Metadata
from horovodjob_operator.controller.children.plan_executor import PlanExecutor
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.jobs.job_state import JobState, new_job_state
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.domain.job_defaults import JobDefaults, NamespaceDefaults
from horovodjob_operator.kube.caches.pod_cache import PodCache
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.kueue.workload_reconciler import WorkloadReconciler
from support.job_driver import Job


def one_hour_later() -> datetime:
    """A clock that is one hour ahead: all observed times are long past."""
    return now() + timedelta(hours=1)


def cached_state(job: Job, store: JobStore) -> JobState:
    """The state of a job, as the watch of the jobs makes it."""
    raw = job.get()
    new = new_job_state(raw, Metadata.model_validate(raw["metadata"]), NamespaceDefaults(JobDefaults()))
    known = store.states.setdefault(new.job.key, new)
    known.update(new)
    return known


def reconciler_of(client: ApiClient, clock: Callable[[], datetime], pods: PodCache | None = None) -> Reconciler:
    """A reconciler that writes with this client."""
    workload_reconciler = WorkloadReconciler(WorkloadCache(), KueueApi(client))
    pods, reader = pods or PodCache(), Reader(client)
    line = QuotaLine(JobStore(), pods, reader, clock)
    writer = Writer(client, "test")
    executor = PlanExecutor(pods, writer, reader, clock, line)
    return Reconciler(pods, writer, reader, clock, workload_reconciler, executor)
