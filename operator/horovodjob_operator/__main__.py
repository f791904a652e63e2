"""The operator process: `python -m horovodjob_operator`."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

import kopf
import uvloop
from aiohttp import web
from pythonjsonlogger.json import JsonFormatter

from horovodjob.api.constants import API_VERSION
from horovodjob_operator.cluster.access import MetricsAccess
from horovodjob_operator.cluster.caches import Caches
from horovodjob_operator.cluster.connection import Connection, Pause, login
from horovodjob_operator.cluster.job_watch import FinishedJobLists, JobLists, JobRights, JobSigns
from horovodjob_operator.cluster.lease import Lease, lease_connection
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.cluster.pod_watch import PodWatch
from horovodjob_operator.cluster.preflight import Preflight
from horovodjob_operator.cluster.tokens import Tokens
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.event_handlers import EventHandlers, kopf_settings, register
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.work_queue import JobLoader, WorkQueue
from horovodjob_operator.endpoints import progress
from horovodjob_operator.endpoints.health import HealthServer
from horovodjob_operator.errors import ClusterError, NotServed, OperatorError
from horovodjob_operator.loop_thread import LoopThread
from horovodjob_operator.metrics import LEADER, REGISTRY, WATCH_AGE, WORKQUEUE_DEPTH, JobStates
from horovodjob_operator.settings import Settings

DEAD_WATCH_SECONDS = 600
REVIEWS_AT_ONCE = 2
log = logging.getLogger("horovodjob")


class Process:
    """Wires the parts together and runs them until a signal or a failure ends the process."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        review_connection: Connection,
        lease_thread: LoopThread,
        lease_connection: Connection,
    ) -> None:
        self.settings, self.connection, self.review_connection = settings, connection, review_connection
        self.caches = Caches()
        self.preflight = Preflight() if settings.preflight else None
        objects = Objects(connection, settings.identity)
        reconciler = Reconciler(self.caches, objects, now, settings.progress_url, self.preflight)
        self.work_queue = WorkQueue(self.caches, reconciler, JobLoader(self.caches, objects, settings.defaults))
        self.events = EventHandlers(self.caches, self.work_queue, settings.defaults)
        self.namespaces = settings.watched_namespaces
        self.job_signs = JobSigns(self.namespaces or ("",))
        self.job_lists = JobLists(self.namespaces or ("",), seen=self.events.job_seen, listed=self._jobs_listed)
        self.finished_job_lists = FinishedJobLists(
            connection, seen=self.events.job_seen, listed=self.events.finished_jobs_listed
        )
        self.pod_watches = [
            PodWatch(
                connection,
                seen=self.events.pod_seen,
                gone=self.events.pod_gone,
                listed=self._listed,
                timeout_seconds=settings.watch_timeout_seconds,
                namespace=namespace,
            )
            for namespace in self.namespaces or ("",)
        ]
        self.became_leader, self.lease_thread = asyncio.Event(), lease_thread
        loop = asyncio.get_running_loop()
        self.lease = Lease(
            lease_connection,
            settings.lease_namespace,
            settings.lease_name,
            settings.identity,
            now,
            on_acquired=partial(loop.call_soon_threadsafe, self.became_leader.set),
        )
        if settings.lease_namespace:
            connection.may_write = lambda: self.lease.current
        REGISTRY.register(JobStates(self.caches.all_jobs, self.caches.finished_phases, self.is_leader))
        WATCH_AGE.labels("pods").set_function(self._pod_watch_age)
        WATCH_AGE.labels("horovodjobs").set_function(lambda: time.monotonic() - self.job_signs.alive_at)
        WORKQUEUE_DEPTH.set_function(lambda: self.work_queue.depth)
        LEADER.set_function(lambda: float(self.is_leader()))

    def is_leader(self) -> bool:
        """Whether this process acts: it holds the Lease, or needs none."""
        return self.lease.is_held or not self.settings.lease_namespace

    def _pod_watch_age(self) -> float:
        """Seconds since the last sign of life of the watch that has been silent for longest."""
        return time.monotonic() - min(watch.alive_at for watch in self.pod_watches)

    def _listed(self, uids: set[str], version: int, namespace: str) -> None:
        for key in self.caches.pods_listed(uids, version, namespace):
            if key in self.caches.jobs:
                self.work_queue.enqueue(key)

    def _jobs_listed(self, uids: set[str], version: int, namespace: str) -> None:
        self.caches.live_jobs_listed(uids, version, namespace)
        if self.job_lists.selects:
            self.finished_job_lists.request(namespace)
        else:
            self.events.finished_jobs_listed(uids, version, namespace)

    def unhealthy(self) -> str:
        """What is wrong with the process, or nothing."""
        ages = {"pods": self._pod_watch_age(), "HorovodJobs": time.monotonic() - self.job_signs.alive_at}
        watch, age = max(ages.items(), key=lambda each: each[1])
        return f"the watch of the {watch} has been silent for {age:.0f} s" if age > DEAD_WATCH_SECONDS else ""

    def unready(self) -> str:
        """Why the process cannot do its work yet, or nothing."""
        if not all(watch.answered.is_set() for watch in self.pod_watches):
            return "the pods have not been listed yet"
        return "" if self.job_lists.answered else "the HorovodJobs have not been listed yet"

    async def run(self) -> None:
        """Runs until kopf is told to stop by a signal, or a part fails. Raises OperatorError in that case."""
        servers = await self._serve()
        # Kopf cancels all tasks that were made after its start, so ours are made before.
        parts = [asyncio.create_task(part, name=name) for name, part in self._parts()]
        watching = asyncio.create_task(self._watch_jobs(), name="the watch of the jobs")
        try:
            done, _ = await asyncio.wait([*parts, watching], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if error := task.exception():
                    raise OperatorError(f"{task.get_name()} has ended: {type(error).__name__}: {error}") from error
                if task is not watching:
                    raise OperatorError(f"{task.get_name()} has ended")
        finally:
            await self.work_queue.close()
            for task in [*parts, watching]:
                task.cancel()
            await asyncio.gather(*parts, watching, return_exceptions=True)
            if self.preflight:
                self.preflight.close()
            await self.lease_thread.run(self.lease.release())
            await asyncio.gather(*(server.cleanup() for server in servers))

    async def _serve(self) -> list[HealthServer | web.BaseRunner]:
        """The servers of the process."""
        settings = self.settings
        access = MetricsAccess(self.review_connection) if settings.metrics_authorization else None
        own = HealthServer(
            settings.http_port, healthy=self.unhealthy, ready=self.unready, registry=REGISTRY, access=access
        )
        await own.start()
        if not settings.progress_url:
            return [own]
        reports = progress.Reports(
            self.caches,
            Tokens(self.connection),
            now,
            news=self.work_queue.enqueue,
            leads=lambda: self.is_leader() and not self.unready(),
        )
        return [own, await progress.serve(settings.progress_port, reports)]

    def _parts(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        parts: list[tuple[str, Coroutine[Any, Any, None]]] = [
            *(("the watch of the pods", watch.run()) for watch in self.pod_watches),
            ("the lists of finished jobs", self._list_finished_jobs()),
            ("the work queue", self._lead()),
        ]
        if self.settings.lease_namespace:
            parts.append(("the lease", self.lease_thread.run(self.lease.run())))
        else:
            self.became_leader.set()
        return parts

    async def _list_finished_jobs(self) -> None:
        """Begins when the pods are known, by which one tells whether a job that has ended was cleaned up."""
        for watch in self.pod_watches:
            await watch.answered.wait()
        await self.finished_job_lists.run()

    async def _lead(self) -> None:
        """Opens the work queue when this process may act; a resync now and then mends what lost events cost."""
        for watch in self.pod_watches:
            await watch.answered.wait()
        await self.became_leader.wait()
        self.work_queue.open()
        while True:
            await self.work_queue.resync(self.settings.resync_seconds)

    async def _wait_for_crd(self) -> None:
        """Kopf looks for the resource once: it has to be served by then."""
        told = False
        while True:
            try:
                await self.connection.request("GET", f"/apis/{API_VERSION}")
                return
            except ClusterError as error:
                if isinstance(error, NotServed):
                    self.job_signs.note_all()
                if not told:
                    log.warning("the API server does not serve %s, waiting for its CRD: %s", API_VERSION, error)
                told = True
                await asyncio.sleep(1)

    async def _watch_jobs(self) -> None:
        await self._wait_for_crd()
        registry = kopf.OperatorRegistry()
        register(registry, self.events)

        @kopf.on.login(registry=registry)
        def connect(**_: object) -> kopf.AiohttpSession:
            session = self.connection.new_session(JobRights(), self.job_lists, self.job_signs)
            return kopf.AiohttpSession(server=self.connection.server, aiohttp_session=session)

        await kopf.operator(
            registry=registry,
            settings=kopf_settings(self.settings.watch_timeout_seconds),
            standalone=True,
            clusterwide=not self.namespaces,
            namespaces=self.namespaces,
        )


class UtcJsonFormatter(JsonFormatter):
    """One JSON object a line, with times in UTC as RFC 3339 has them."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def _log_json(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    fields = {"asctime": "time", "levelname": "level", "name": "logger"}
    handler.setFormatter(UtcJsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=fields))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # Kopf logs an error at each try of a request; what keeps failing is in the metrics, and a missing right in our log.
    for name in ("kopf._cogs.clients", "kopf._core.reactor.observation"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("horovodjob").setLevel(level)


async def _operate(settings: Settings) -> None:
    access, pause = login(), Pause()
    async with (
        contextlib.aclosing(Connection(access, limit=settings.concurrent_writes, pause=pause)) as connection,
        # A standby, which must not write, reviews the tokens of those who read its metrics.
        contextlib.aclosing(Connection(access, limit=REVIEWS_AT_ONCE, pause=pause)) as review_connection,
        lease_connection(access) as (lease_thread, own_connection),
    ):
        await Process(settings, connection, review_connection, lease_thread, own_connection).run()


def main() -> int:
    """Exit code of the process: 0 after a signal, 1 with one sentence in the log after a failure."""
    try:
        settings = Settings.from_environment(os.environ)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _log_json(settings.log_level)
    log.info("the operator starts as %s", settings.identity)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_operate(settings))
    except (OperatorError, OSError) as error:
        log.error("the operator ends: %s", error)
        return 1
    log.info("the operator has stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
