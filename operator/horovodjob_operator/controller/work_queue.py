"""Reconciliations: one at a time per job, on its newest state."""

import asyncio
import logging
import random
import time
from datetime import datetime, timedelta

from horovodjob.api.job import Metadata
from horovodjob_operator.cluster.caches import Caches, Key, Record
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.reconciler import EVENT_SECONDS, Reconciler
from horovodjob_operator.controller.stored_jobs import finished_job, new_record
from horovodjob_operator.domain import names
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.errors import Gone, NameTaken, OperatorError
from horovodjob_operator.metrics import RECONCILE_DURATION, RECONCILE_ERRORS, WORKQUEUE_DURATION

RETRY_LONGEST_SECONDS = 30.0
# Between reconciliations of a big job, each of which takes an eighth of this: thousands of pods change one by one.
PAUSE_SECONDS_PER_WORKER = 2e-5
LARGEST_WITHOUT_PAUSE = 200
# Jobs that have ended, and are read again at a time because something is left to do.
LOADS_AT_ONCE = 8
log = logging.getLogger("horovodjob.work_queue")


class JobLoader:
    """Reads again the jobs that have ended, and of which little is kept."""

    def __init__(self, caches: Caches, objects: Objects, defaults: JobDefaults) -> None:
        self._caches, self._objects, self._defaults = caches, objects, defaults
        self._slots = asyncio.Semaphore(LOADS_AT_ONCE)

    async def record(self, key: Key) -> Record | None:
        """What is known of a job; None where it is deleted. Raises Unavailable."""
        if key not in self._caches.finished:
            return self._caches.jobs.get(key)
        async with self._slots:
            try:
                raw = await self._objects.job(*key)
            except Gone:
                raw = None
        if key not in self._caches.finished:  # the watch has been quicker
            return self._caches.jobs.get(key)
        if raw is None or raw["metadata"]["uid"] != self._caches.finished[key].uid:
            self._caches.forget_job(key)
            return None
        record = new_record(raw, Metadata.model_validate(raw["metadata"]), self._defaults)
        self._caches.keep_job(record)
        return record


class WorkQueue:
    """Reconciles jobs: once for a burst of events of a job, and again with growing delay where it fails."""

    def __init__(self, caches: Caches, reconciler: Reconciler, loader: JobLoader) -> None:
        self._caches, self._reconciler, self._loader = caches, reconciler, loader
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._queued: dict[Key, float] = {}
        """Jobs that wait for their reconciliation, with the moment on the performance counter since when."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._open = False

    @property
    def depth(self) -> int:
        """How many jobs wait for their reconciliation."""
        return len(self._queued)

    @property
    def timers(self) -> int:
        """How many jobs are enqueued for a later moment."""
        return len(self._timers)

    @property
    def is_open(self) -> bool:
        """Whether jobs are reconciled."""
        return self._open

    def open(self) -> None:
        """Begins: this process is the leader and its caches are full."""
        self._open = True
        for key in tuple(self._caches.jobs):
            self.enqueue(key)
        for key in tuple(self._caches.finished):
            self.finished(key)

    def finished(self, key: Key) -> None:
        """A job has ended, perhaps before this process began: what its end left to do is done, now or in time."""
        job = self._caches.finished[key]
        if not self._open:
            return
        is_recent = now() - job.completed_at < timedelta(seconds=EVENT_SECONDS)
        if is_recent or not job.is_observed or self._caches.has_pods_that_run(key):
            self.enqueue(key)
        elif job.delete_at:
            self.look_at(key, job.delete_at)

    async def close(self) -> None:
        """Ends; reconciliations under way have five seconds to end."""
        self._open = False
        for timer in self._timers.values():
            timer.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=5)

    async def resync(self, seconds: float) -> None:
        """Enqueues every job, spread over this time."""
        keys = tuple(self._caches.jobs)
        for key in keys:
            await asyncio.sleep(seconds / len(keys))
            self.enqueue(key)
        if not keys:
            await asyncio.sleep(seconds)

    def forget(self, key: Key) -> None:
        """Cancels the next reconciliation of a job, which is deleted."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def enqueue(self, key: Key) -> None:
        """There is news about a job."""
        if not self._open or self._caches.uid(key) is None or not self._caches.knows_pods(key[0]):
            return
        self._queued.setdefault(key, time.perf_counter())
        if key in self._running:
            return
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._running[key] = asyncio.create_task(self._run(key), name=f"reconcile {key[0]}/{key[1]}")

    async def _run(self, key: Key) -> None:
        failures, again = 0, None
        try:
            while self._caches.uid(key) and self._open:
                if queued_at := self._queued.pop(key, None):
                    WORKQUEUE_DURATION.observe(time.perf_counter() - queued_at)
                again, failed = await self._reconcile(key, failures)
                failures = failures + 1 if failed else 0
                record = self._caches.jobs.get(key)
                if record and (workers := record.job.spec.worker.replicas) > LARGEST_WITHOUT_PAUSE:
                    await asyncio.sleep(workers * PAUSE_SECONDS_PER_WORKER)
                if key not in self._queued and not (again and again <= now()):
                    break
        finally:
            del self._running[key]
            self._queued.pop(key, None)
        if again and self._caches.uid(key) and self._open:
            self.look_at(key, again)

    def look_at(self, key: Key, at: datetime) -> None:
        """Enqueues a job at a moment, unless there is news about it before."""
        self.forget(key)
        delay = max((at - now()).total_seconds(), 0)
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self.enqueue, key)

    async def _reconcile(self, key: Key, failures: int) -> tuple[datetime | None, bool]:
        """When the next reconciliation is due, and whether this one has failed."""
        started = time.perf_counter()
        fields = {"namespace": key[0], "job": key[1]}
        try:
            record = await self._loader.record(key)
            if record is None:
                return None, False
            fields = names.log_fields(record.job)
            again = await self._reconciler.reconcile(record)
            self._drop_finished(record, again)
            return again, False
        except (Gone, NameTaken) as error:
            # The job or its namespace is gone: the watch will say so. Until then there is nothing to do for it.
            log.debug("%s/%s %s", *key, error, extra=fields)
            return None, False
        except OperatorError as error:
            RECONCILE_ERRORS.inc()
            log.warning("%s/%s %s", *key, error, extra=fields)
        except Exception as error:
            # One job's trouble, even a defect of ours, must not stop the reconciliation of the others.
            RECONCILE_ERRORS.inc()
            log.error("%s/%s %s: %s", *key, type(error).__name__, error, extra=fields)
            log.debug("traceback", exc_info=error, extra=fields)
        finally:
            RECONCILE_DURATION.observe(time.perf_counter() - started)
        delay = min(RETRY_LONGEST_SECONDS, 0.5 * 2 ** min(failures, 10)) * random.uniform(0.7, 1)
        await asyncio.sleep(delay)
        return now(), True

    def _drop_finished(self, record: Record, again: datetime | None) -> None:
        """Keeps little of a job that has ended, when all has been done but to delete it in time."""
        job = record.job
        finished = finished_job(job, record.version)
        known = self._caches.jobs.get(job.key) is record and job.key not in self._queued
        if finished is None or again not in (None, finished.delete_at) or not known:
            return
        self._caches.keep_finished(job.key, finished)
