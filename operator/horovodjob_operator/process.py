"""The process of the operator: its parts, and how they start and end."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import kopf

from horovodjob_operator.controller.children.plan_executor import PlanExecutor
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.controller.jobs.reporting_jobs import ReportingJobs
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.watches.event_handlers import EventHandlers
from horovodjob_operator.controller.watches.kopf_settings import kopf_settings, register
from horovodjob_operator.controller.watches.namespace_selection import NamespaceSelection
from horovodjob_operator.controller.work_queue import WorkQueue
from horovodjob_operator.domain.job_errors import JobFailure
from horovodjob_operator.errors import OperatorError
from horovodjob_operator.http_servers import HttpServers
from horovodjob_operator.kube.admission_policy import report_missing_policy
from horovodjob_operator.kube.lease import Lease
from horovodjob_operator.kube.pod_cache import Key, PodCache
from horovodjob_operator.kube.preflight import Preflight
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import NAMESPACES_PATH, pods_path, resource_quotas_path
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.kube.watches.job_list import FINISHED, JobList
from horovodjob_operator.kube.watches.job_watch import ForbiddenRetry, JobWatch, UnfinishedJobList
from horovodjob_operator.kube.watches.object_watch import ObjectWatch, OptionalWatch, WatchHandlers
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.kueue.workload_reconciler import WorkloadReconciler
from horovodjob_operator.kueue.workload_watch import WorkloadWatch
from horovodjob_operator.loop_thread import LoopThread
from horovodjob_operator.metrics import (
    LEADER,
    NAMESPACE_SERIES,
    REGISTRY,
    TASKS,
    WATCH_AGE,
    WORKQUEUE_DELAYED,
    WORKQUEUE_DEPTH,
    JobCollector,
)
from horovodjob_operator.settings import Settings

MAX_WATCH_AGE_SECONDS = 600
MAX_LIST_DELAY_SECONDS = 10
# How long a failed job has a series with its name.
FAILURE_SERIES_TIME = timedelta(hours=1)
log = logging.getLogger("horovodjob")


class Process:
    """Creates the parts of the operator; kopf starts them, and ends them after a signal or a failure.

    A replica that is not the leader waits in the startup of kopf: it watches nothing, so it has no outdated caches.
    """

    def __init__(
        self,
        settings: Settings,
        client: ApiClient,
        review_client: ApiClient,
        lease_thread: LoopThread,
        lease_client: ApiClient,
    ) -> None:
        self.settings, self.client = settings, client
        self.store, self.pods, workloads = JobStore(), PodCache(), WorkloadCache()
        self.preflight = Preflight(settings.preflight_hosts) if settings.preflight_hosts else None
        reader, writer = Reader(client), Writer(client, settings.identity)
        workload_reconciler = WorkloadReconciler(workloads, KueueApi(client))
        self.quota_line = QuotaLine(self.store, self.pods, reader, now)
        executor = PlanExecutor(self.pods, writer, reader, now, self.quota_line, settings.progress_url, self.preflight)
        self.reconciler = Reconciler(
            self.pods,
            writer,
            reader,
            now,
            workload_reconciler,
            executor,
            self.quota_line,
            reads_nodes=bool(settings.read_nodes),
        )
        self.work_queue = WorkQueue(self.store, self.pods, self.reconciler)
        self.quota_line.enqueue = self.work_queue.enqueue
        self.selection = NamespaceSelection(settings.defaults, is_selective=bool(settings.namespace_selector))
        self.events = EventHandlers(self.store, self.pods, self.work_queue, self.selection, workloads, self.quota_line)
        self.namespaces = settings.watched_namespaces
        updated, deleted = self.events.job_updated, self.events.job_deleted
        self.job_watch = JobWatch(self.namespaces or ("",), updated=updated, deleted=deleted)
        self.unfinished_job_list = UnfinishedJobList(
            self.namespaces or ("",), updated=updated, listed=self._unfinished_jobs_listed
        )
        wait = partial(self.work_queue.wait_for_current, MAX_LIST_DELAY_SECONDS)
        new_list = partial(JobList, client, updated=self.events.job_updated, wait_for_reconciliations=wait)
        self.finished_job_list = new_list(FINISHED, listed=self.events.finished_jobs_listed)
        self.selected_job_list = new_list("", listed=lambda *_: None)
        self.namespace_watch = self._namespace_watch() if settings.namespace_selector else None
        self.pod_watches, self.workload_watches = self._pod_watches(), self._workload_watches()
        self.quota_watches = self._quota_watches()
        self.became_leader, self.lease_thread = asyncio.Event(), lease_thread
        self.lease = Lease(
            lease_client,
            settings.lease_namespace,
            settings.lease_name,
            settings.identity,
            now,
            on_acquired=partial(asyncio.get_running_loop().call_soon_threadsafe, self.became_leader.set),
        )
        if settings.lease_namespace:
            client.only_write_if(lambda: self.lease.is_current)
        else:
            self.became_leader.set()
        self.servers = HttpServers(
            settings,
            client,
            review_client,
            ReportingJobs(self.store, self.pods, self.work_queue.enqueue, self.reconciler.heartbeats, now),
            unhealthy=self.unhealthy,
            unready=self.unready,
            is_leader=self.is_leader,
        )
        self._parts: list[asyncio.Task[None]] = []
        self._stop, self._failure = asyncio.Event(), ""
        self._export_metrics()

    def _namespace_watch(self) -> ObjectWatch:
        self.selection.deselected = self.events.namespace_deselected
        self.selection.changed = self.events.defaults_changed
        selection, seconds = self.selection, self.settings.watch_timeout_seconds
        handlers = WatchHandlers(selection.namespace_updated, selection.namespace_deleted, selection.namespaces_listed)
        # The API server reports a namespace that loses the labels as deleted.
        return ObjectWatch(
            self.client,
            NAMESPACES_PATH,
            "namespace",
            handlers,
            timeout_seconds=seconds,
            label_selector=self.settings.namespace_selector,
        )

    def _pod_watches(self) -> list[ObjectWatch]:
        handlers = WatchHandlers(self.events.pod_updated, self.events.pod_deleted, self.events.pods_listed)
        seconds = self.settings.watch_timeout_seconds
        return [
            ObjectWatch(self.client, pods_path(name), "pod", handlers, timeout_seconds=seconds, namespace=name)
            for name in self.namespaces or ("",)
        ]

    def _workload_watches(self) -> list[WorkloadWatch]:
        events, seconds = self.events, self.settings.watch_timeout_seconds
        handlers = WatchHandlers(events.workload_updated, events.workload_deleted, events.workloads_listed)
        unavailable, needed = events.workloads_unavailable, self.store.until_queue_used
        return [
            WorkloadWatch(self.client, handlers, unavailable, needed, timeout_seconds=seconds, namespace=namespace)
            for namespace in self.namespaces or ("",)
        ]

    def _quota_watches(self) -> list[OptionalWatch]:
        """Watches that only say that a quota has changed: what is used is read then, with the pods created before.

        Without the right to watch, jobs that wait for a quota try at times.
        """
        line, seconds = self.quota_line, self.settings.watch_timeout_seconds
        handlers = WatchHandlers(line.quota_changed, line.quota_changed, lambda *_: None)
        return [
            OptionalWatch(
                self.client,
                resource_quotas_path(namespace),
                "ResourceQuota",
                handlers,
                line.until_used,
                timeout_seconds=seconds,
                namespace=namespace,
                label_selector="",
            )
            for namespace in self.namespaces or ("",)
        ]

    def _export_metrics(self) -> None:
        REGISTRY.register(JobCollector(self.store.jobs, self.store.finished_phases, self._failures, self.is_leader))
        WATCH_AGE.labels("pods").set_function(lambda: self._watch_ages()["pods"])
        WATCH_AGE.labels("horovodjobs").set_function(lambda: self._watch_ages()["HorovodJobs"])
        if self.namespace_watch:
            WATCH_AGE.labels("namespaces").set_function(lambda: self._watch_ages()["namespaces"])
        WORKQUEUE_DEPTH.set_function(lambda: self.work_queue.depth)
        WORKQUEUE_DELAYED.set_function(lambda: self.work_queue.timers)
        loop = asyncio.get_running_loop()  # The health server calls this in its own thread.
        TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))
        LEADER.set_function(lambda: float(self.is_leader()))

    def _failures(self) -> Iterator[tuple[Key, JobFailure]]:
        return self.store.failures_since(now() - FAILURE_SERIES_TIME)

    def is_leader(self) -> bool:
        """Whether this process reconciles jobs: it holds the Lease, or needs none."""
        return self.lease.is_held or not self.settings.lease_namespace

    def _watch_ages(self) -> dict[str, float]:
        """Seconds since the watch of each resource that has been silent for longest received data."""
        alive_at = {
            "pods": min(watch.alive_at for watch in self.pod_watches),
            "HorovodJobs": self.job_watch.alive_at,
            "Workloads": min(watch.alive_at for watch in self.workload_watches),
            "ResourceQuotas": min(watch.alive_at for watch in self.quota_watches),
            **({"namespaces": self.namespace_watch.alive_at} if self.namespace_watch else {}),
        }
        # A standby has no watches.
        return {
            resource: time.monotonic() - at if self.became_leader.is_set() else 0.0 for resource, at in alive_at.items()
        }

    def _unfinished_jobs_listed(self, uids: set[str], version: int, namespace: str) -> None:
        self.store.unfinished_jobs_listed(uids, version, namespace)
        if self.unfinished_job_list.is_selective:
            self.finished_job_list.request(namespace)
        else:
            self.events.finished_jobs_listed(uids, version, namespace)

    def unhealthy(self) -> str:
        """Why the process must be restarted; empty if it is healthy."""
        resource, age = max(self._watch_ages().items(), key=lambda item: item[1])
        return f"the watch of the {resource} has been silent for {age:.0f} s" if age > MAX_WATCH_AGE_SECONDS else ""

    def unready(self) -> str:
        """Why the process can neither reconcile jobs nor take over from the leader; empty if it can."""
        if not self.is_leader():
            return ""
        if not self.selection.has_listed:
            return "the namespaces have not been listed yet"
        if not all(watch.has_listed.is_set() for watch in self.pod_watches):
            return "the pods have not been listed yet"
        return "" if self.unfinished_job_list.has_listed else "the HorovodJobs have not been listed yet"

    async def run(self) -> None:
        """Runs until a signal ends kopf, or until a part fails. Raises OperatorError in that case."""
        registry = kopf.OperatorRegistry()
        register(registry)
        kopf.on.startup(registry=registry)(self.start)
        kopf.on.cleanup(registry=registry)(self.stop)
        kopf.on.login(registry=registry)(self.connect)
        try:
            await kopf.operator(
                registry=registry,
                settings=kopf_settings(self.settings.watch_timeout_seconds),
                standalone=True,
                clusterwide=not self.namespaces,
                namespaces=self.namespaces,
                stop_flag=self._stop,
            )
        finally:
            if self._failure:  # It can also be the cause of an error in kopf, whose requests it interrupts.
                raise OperatorError(self._failure)

    async def start(self, **_: object) -> None:
        """Starts all parts; kopf watches the jobs next. A failure ends the process."""
        try:
            try:
                await self._start_parts()
            except (OperatorError, OSError) as error:
                self._fail(str(error))
                await asyncio.Event().wait()  # Kopf cancels it, and would send its first requests after a return.
        except asyncio.CancelledError:
            await self.stop()  # Kopf calls it only after a complete startup.
            raise

    async def _start_parts(self) -> None:
        """Waits for the Lease, and then for the pods, without which no job can be reconciled."""
        await self.servers.start()
        if self.settings.lease_namespace:
            self._run_part("the lease", self.lease_thread.run(self.lease.run()))
        await self.became_leader.wait()
        await report_missing_policy(self.client, *self.namespaces, self.settings.lease_namespace, "default")
        self.job_watch.reset()
        if self.namespace_watch:
            self._run_part("the watch of the namespaces", self.namespace_watch.run())
            await self.namespace_watch.has_listed.wait()
            # The first list of jobs includes those of the namespaces that are selected now.
            self.selection.selected = self.selected_job_list.request
            self._run_part("the lists of jobs of selected namespaces", self.selected_job_list.run())
        for watch in self.pod_watches:
            self._run_part("the watch of the pods", watch.run())
        for watch in self.pod_watches:
            await watch.has_listed.wait()
        for workload_watch in self.workload_watches:
            self._run_part("the watch of the Workloads", workload_watch.run())
        for quota_watch in self.quota_watches:
            self._run_part("the watch of the ResourceQuotas", quota_watch.run())
        self._run_part("the jobs that wait for quotas", self.quota_line.run())
        self._run_part("the lists of finished jobs", self.finished_job_list.run())
        self._run_part("the events", self.reconciler.events.run())
        self._run_part("the time of reports", self.reconciler.heartbeats.run())
        self._run_part("the resync", self._resync())
        await self.job_watch.wait_until_served(self.client)

    async def stop(self, **_: object) -> None:
        """Completes the current reconciliations, and releases the Lease."""
        await self.work_queue.close()
        await self.reconciler.events.close()
        for part in self._parts:
            part.cancel()
        await asyncio.gather(*self._parts, return_exceptions=True)
        if self.preflight:
            self.preflight.close()
        await self.lease_thread.run(self.lease.release())
        await self.servers.cleanup()
        self._stop.set()  # Kopf waits five seconds for the task that waits for it.

    def connect(self, **_: object) -> kopf.AiohttpSession:
        """The session of kopf, which closes it after some errors."""
        session = self.client.new_session(ForbiddenRetry(), self.unfinished_job_list, self.job_watch)
        return kopf.AiohttpSession(server=self.client.server, aiohttp_session=session)

    def _run_part(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        """Runs a part until the process ends; its end is a failure."""

        async def run() -> None:
            try:
                await part
                self._fail(f"{name} has ended")
            except Exception as error:
                self._fail(f"{name} has ended: {type(error).__name__}: {error}")

        self._parts.append(asyncio.create_task(run(), name=name))

    def _fail(self, sentence: str) -> None:
        """Ends the process because of a failure."""
        self._failure = self._failure or sentence
        self._stop.set()

    async def _resync(self) -> None:
        """Reconciles all jobs again and again, which compensates for lost events."""
        while True:
            await self.work_queue.resync(self.settings.resync_seconds)
            NAMESPACE_SERIES.remove_unused(self.store.namespaces())
