"""The process of the operator: its parts, and how they start and end."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

import kopf
from aiohttp import web

from horovodjob.api.constants import API_VERSION
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.event_handlers import EventHandlers, register
from horovodjob_operator.controller.job_loader import JobLoader
from horovodjob_operator.controller.job_store import JobStore
from horovodjob_operator.controller.kopf_settings import kopf_settings
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.reporting_jobs import ReportingJobs
from horovodjob_operator.controller.work_queue import WorkQueue
from horovodjob_operator.errors import ClusterError, NotServed, OperatorError
from horovodjob_operator.kube.api_client import ApiClient
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.finished_job_list import FinishedJobList
from horovodjob_operator.kube.job_watch import ExpiredWatch, ForbiddenRetry, JobWatchAge, UnfinishedJobList
from horovodjob_operator.kube.lease import Lease
from horovodjob_operator.kube.metrics_authorization import MetricsAuthorization
from horovodjob_operator.kube.pod_watch import PodWatch
from horovodjob_operator.kube.preflight import Preflight
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.token_review import TokenReviewer
from horovodjob_operator.kube.writer import Writer
from horovodjob_operator.loop_thread import LoopThread
from horovodjob_operator.metrics import (
    LEADER,
    REGISTRY,
    TASKS,
    WATCH_AGE,
    WORKQUEUE_DELAYED,
    WORKQUEUE_DEPTH,
    JobCollector,
)
from horovodjob_operator.servers.health import HealthServer
from horovodjob_operator.servers.progress_reports import ProgressReports, start_server
from horovodjob_operator.settings import Settings

MAX_WATCH_AGE_SECONDS = 600
MAX_LIST_DELAY_SECONDS = 10
log = logging.getLogger("horovodjob")


class Process:
    """Creates the parts of the operator, and runs them until a signal or a failure ends the process."""

    def __init__(
        self,
        settings: Settings,
        client: ApiClient,
        review_client: ApiClient,
        lease_thread: LoopThread,
        lease_client: ApiClient,
    ) -> None:
        self.settings, self.client, self.review_client = settings, client, review_client
        self.store, self.pods = JobStore(), PodCache()
        self.preflight = Preflight() if settings.preflight else None
        reader, writer = Reader(client), Writer(client, settings.identity)
        reconciler = Reconciler(self.pods, writer, reader, now, settings.progress_url, self.preflight)
        loader = JobLoader(self.store, reader, settings.defaults)
        self.work_queue = WorkQueue(self.store, self.pods, reconciler, loader)
        self.events = EventHandlers(self.store, self.pods, self.work_queue, settings.defaults)
        self.namespaces = settings.watched_namespaces
        self.job_watch_age = JobWatchAge(self.namespaces or ("",))
        self.unfinished_job_list = UnfinishedJobList(
            self.namespaces or ("",), updated=self.events.job_updated, listed=self._unfinished_jobs_listed
        )
        self.finished_job_list = FinishedJobList(
            client,
            updated=self.events.job_updated,
            listed=self.events.finished_jobs_listed,
            wait_for_reconciliations=partial(self.work_queue.wait_for_current, MAX_LIST_DELAY_SECONDS),
        )
        self.pod_watches = [
            PodWatch(
                client,
                updated=self.events.pod_updated,
                deleted=self.events.pod_deleted,
                listed=self.events.pods_listed,
                timeout_seconds=settings.watch_timeout_seconds,
                namespace=namespace,
            )
            for namespace in self.namespaces or ("",)
        ]
        self.became_leader, self.lease_thread = asyncio.Event(), lease_thread
        loop = asyncio.get_running_loop()
        self.lease = Lease(
            lease_client,
            settings.lease_namespace,
            settings.lease_name,
            settings.identity,
            now,
            on_acquired=partial(loop.call_soon_threadsafe, self.became_leader.set),
        )
        if settings.lease_namespace:
            client.may_write = lambda: self.lease.is_current
        self._export_metrics()

    def _export_metrics(self) -> None:
        REGISTRY.register(JobCollector(self.store.jobs, self.store.finished_phases, self.is_leader))
        WATCH_AGE.labels("pods").set_function(self._pod_watch_age)
        WATCH_AGE.labels("horovodjobs").set_function(lambda: time.monotonic() - self.job_watch_age.alive_at)
        WORKQUEUE_DEPTH.set_function(lambda: self.work_queue.depth)
        WORKQUEUE_DELAYED.set_function(lambda: self.work_queue.timers)
        TASKS.set_function(partial(_count_tasks, asyncio.get_running_loop()))
        LEADER.set_function(lambda: float(self.is_leader()))

    def is_leader(self) -> bool:
        """Whether this process reconciles jobs: it holds the Lease, or needs none."""
        return self.lease.is_held or not self.settings.lease_namespace

    def _pod_watch_age(self) -> float:
        """Seconds since the pod watch that has been silent for longest received data."""
        return time.monotonic() - min(watch.alive_at for watch in self.pod_watches)

    def _unfinished_jobs_listed(self, uids: set[str], version: int, namespace: str) -> None:
        self.store.unfinished_jobs_listed(uids, version, namespace)
        if self.unfinished_job_list.is_selective:
            self.finished_job_list.request(namespace)
        else:
            self.events.finished_jobs_listed(uids, version, namespace)

    def unhealthy(self) -> str:
        """Why the process must be restarted; empty if it is healthy."""
        ages = {"pods": self._pod_watch_age(), "HorovodJobs": time.monotonic() - self.job_watch_age.alive_at}
        resource, age = max(ages.items(), key=lambda item: item[1])
        return f"the watch of the {resource} has been silent for {age:.0f} s" if age > MAX_WATCH_AGE_SECONDS else ""

    def unready(self) -> str:
        """Why the process cannot reconcile jobs yet; empty if it can."""
        if not all(watch.has_listed.is_set() for watch in self.pod_watches):
            return "the pods have not been listed yet"
        return "" if self.unfinished_job_list.has_listed else "the HorovodJobs have not been listed yet"

    async def run(self) -> None:
        """Runs until a signal ends kopf, or until a part fails. Raises OperatorError in that case."""
        servers = await self._start_servers()
        # Kopf cancels all tasks that are created after its start, so ours are created before.
        parts = [asyncio.create_task(part, name=name) for name, part in self._parts()]
        job_watch = asyncio.create_task(self._watch_jobs(), name="the watch of the jobs")
        try:
            done, _ = await asyncio.wait([*parts, job_watch], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if error := task.exception():
                    raise OperatorError(f"{task.get_name()} has ended: {type(error).__name__}: {error}") from error
                if task is not job_watch:
                    raise OperatorError(f"{task.get_name()} has ended")
        finally:
            await self.work_queue.close()
            for task in [*parts, job_watch]:
                task.cancel()
            await asyncio.gather(*parts, job_watch, return_exceptions=True)
            if self.preflight:
                self.preflight.close()
            await self.lease_thread.run(self.lease.release())
            await asyncio.gather(*(server.cleanup() for server in servers))

    async def _start_servers(self) -> list[HealthServer | web.BaseRunner]:
        settings = self.settings
        authorization = MetricsAuthorization(self.review_client) if settings.metrics_authorization else None
        health = HealthServer(
            settings.http_port,
            unhealthy=self.unhealthy,
            unready=self.unready,
            registry=REGISTRY,
            authorize=authorization.denial if authorization else None,
        )
        await health.start()
        if not settings.progress_url:
            return [health]
        reports = ProgressReports(
            ReportingJobs(self.store, self.pods, self.work_queue.enqueue),
            TokenReviewer(self.client),
            now,
            is_leader=lambda: self.is_leader() and not self.unready(),
        )
        return [health, await start_server(settings.progress_port, reports)]

    def _parts(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        parts: list[tuple[str, Coroutine[Any, Any, None]]] = [
            *(("the watch of the pods", watch.run()) for watch in self.pod_watches),
            ("the lists of finished jobs", self._list_finished_jobs()),
            ("the work queue", self._run_work_queue()),
        ]
        if self.settings.lease_namespace:
            parts.append(("the lease", self.lease_thread.run(self.lease.run())))
        else:
            self.became_leader.set()
        return parts

    async def _list_finished_jobs(self) -> None:
        """Starts when the pods are listed: they show whether a finished job was cleaned up."""
        for watch in self.pod_watches:
            await watch.has_listed.wait()
        await self.finished_job_list.run()

    async def _run_work_queue(self) -> None:
        """Opens the work queue when this process is the leader. Resyncs compensate for lost events."""
        for watch in self.pod_watches:
            await watch.has_listed.wait()
        await self.became_leader.wait()
        self.work_queue.open()
        while True:
            await self.work_queue.resync(self.settings.resync_seconds)

    async def _wait_for_crd(self) -> None:
        """Waits until the API server serves HorovodJobs, because kopf looks for the resource only once."""
        is_logged = False
        while True:
            try:
                await self.client.request("GET", f"/apis/{API_VERSION}")
                return
            except ClusterError as error:
                if isinstance(error, NotServed):
                    self.job_watch_age.reset()
                if not is_logged:
                    log.warning("the API server does not serve %s, waiting for its CRD: %s", API_VERSION, error)
                is_logged = True
                await asyncio.sleep(1)

    async def _watch_jobs(self) -> None:
        await self._wait_for_crd()
        registry = kopf.OperatorRegistry()
        register(registry, self.events)

        @kopf.on.login(registry=registry)
        def connect(**_: object) -> kopf.AiohttpSession:
            session = self.client.new_session(
                ExpiredWatch(), ForbiddenRetry(), self.unfinished_job_list, self.job_watch_age
            )
            return kopf.AiohttpSession(server=self.client.server, aiohttp_session=session)

        await kopf.operator(
            registry=registry,
            settings=kopf_settings(self.settings.watch_timeout_seconds),
            standalone=True,
            clusterwide=not self.namespaces,
            namespaces=self.namespaces,
        )


def _count_tasks(loop: asyncio.AbstractEventLoop) -> float:
    """The number of tasks of the event loop; the health server calls it in its own thread."""
    return len(asyncio.all_tasks(loop))
