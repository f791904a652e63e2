"""The work queue: reconciles one job at a time per key, always with its newest state."""

import asyncio
import logging
import time
from datetime import datetime, timedelta

from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.event_poster import EVENT_SECONDS
from horovodjob_operator.controller.finished_job import finished_job
from horovodjob_operator.controller.job_loader import JobLoader
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.job_store import JobStore
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.domain import names
from horovodjob_operator.errors import Conflict, Gone, OperatorError
from horovodjob_operator.kube.cache import Key, PodCache
from horovodjob_operator.kube.retry_delay import retry_delay_seconds
from horovodjob_operator.metrics import RECONCILE_DURATION, RECONCILE_ERRORS, WORKQUEUE_DURATION

FIRST_RETRY_SECONDS, RETRY_JITTER = 0.5, 0.3
# The pause after a reconciliation of a large job, which takes an eighth of this time: its pods change one by one.
PAUSE_SECONDS_PER_WORKER = 2e-5
MAX_WORKERS_WITHOUT_PAUSE = 200
log = logging.getLogger("horovodjob.work_queue")


class WorkQueue:
    """Reconciles a job once for a burst of events, and again with an increasing delay after a failure."""

    def __init__(self, store: JobStore, pods: PodCache, reconciler: Reconciler, loader: JobLoader) -> None:
        self._store, self._pods, self._reconciler, self._loader = store, pods, reconciler, loader
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._queued: dict[Key, float] = {}
        """Jobs that wait for their reconciliation, with the time of the performance counter when they were enqueued."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._open = False

    @property
    def depth(self) -> int:
        """Number of the jobs that wait for their reconciliation."""
        return len(self._queued)

    @property
    def timers(self) -> int:
        """Number of the jobs that are enqueued for a later time."""
        return len(self._timers)

    @property
    def is_open(self) -> bool:
        """Whether jobs are reconciled."""
        return self._open

    def open(self) -> None:
        """Starts to reconcile: this process is the leader, and its caches are complete."""
        self._open = True
        for key in tuple(self._store.states):
            self.enqueue(key)
        for key in tuple(self._store.finished):
            self.enqueue_finished(key)

    def enqueue_finished(self, key: Key) -> None:
        """Enqueues a finished job if it needs a reconciliation, or for the time of its deletion."""
        job = self._store.finished[key]
        if not self._open:
            return
        is_recent = now() - job.completed_at < timedelta(seconds=EVENT_SECONDS)
        if is_recent or not job.is_observed or self._pods.has_running_pods(key, job.uid):
            self.enqueue(key)
        elif job.delete_at:
            self.enqueue_at(key, job.delete_at)

    async def close(self) -> None:
        """Stops to reconcile, and waits at most five seconds for the current reconciliations."""
        self._open = False
        for timer in self._timers.values():
            timer.cancel()
        await self.wait_for_current(5)

    async def wait_for_current(self, seconds: float) -> None:
        """Waits until the current reconciliations are complete, at most this time."""
        if self._running:
            await asyncio.wait(tuple(self._running.values()), timeout=seconds)

    async def resync(self, seconds: float) -> None:
        """Enqueues every job, evenly distributed over this time."""
        keys = tuple(self._store.states)
        for key in keys:
            await asyncio.sleep(seconds / len(keys))
            self.enqueue(key)
        if not keys:
            await asyncio.sleep(seconds)

    def forget(self, key: Key) -> None:
        """Cancels the timer of a job."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def enqueue(self, key: Key) -> None:
        """Enqueues a job now."""
        if not self._open or self._store.uid(key) is None or not self._pods.has_listed(key[0]):
            return
        self._queued.setdefault(key, time.perf_counter())
        if key in self._running:
            return
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._running[key] = asyncio.create_task(self._run(key), name=f"reconcile {key[0]}/{key[1]}")

    async def _run(self, key: Key) -> None:
        failures, requeue_at = 0, None
        try:
            while self._store.uid(key) and self._open:
                if queued_at := self._queued.pop(key, None):
                    WORKQUEUE_DURATION.observe(time.perf_counter() - queued_at)
                requeue_at, failed = await self._reconcile(key, failures)
                failures = failures + 1 if failed else 0
                state = self._store.states.get(key)
                if state and (workers := state.job.spec.worker.replicas) > MAX_WORKERS_WITHOUT_PAUSE:
                    await asyncio.sleep(workers * PAUSE_SECONDS_PER_WORKER)
                if key not in self._queued and not (requeue_at and requeue_at <= now()):
                    break
        finally:
            del self._running[key]
            self._queued.pop(key, None)
        if requeue_at and self._store.uid(key) and self._open:
            self.enqueue_at(key, requeue_at)

    def enqueue_at(self, key: Key, at: datetime) -> None:
        """Enqueues a job at a later time, unless an event enqueues it earlier."""
        self.forget(key)
        delay = max((at - now()).total_seconds(), 0)
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self.enqueue, key)

    async def _reconcile(self, key: Key, failures: int) -> tuple[datetime | None, bool]:
        """When the next reconciliation is due, and whether this one has failed."""
        started = time.perf_counter()
        fields = {"namespace": key[0], "job": key[1]}
        try:
            state = await self._loader.state(key)
            if state is None:
                return None, False
            fields = names.log_fields(state.job)
            requeue_at = await self._reconciler.reconcile(state)
            self._drop_finished(state, requeue_at)
            return requeue_at, False
        except (Gone, Conflict) as error:
            # The job has changed, or it is deleted with or without its namespace: the watch will report it.
            log.debug("%s/%s %s", *key, error, extra=fields)
            return None, False
        except OperatorError as error:
            RECONCILE_ERRORS.inc()
            log.warning("%s/%s %s", *key, error, extra=fields)
        except Exception as error:
            # An error of one job, even a defect of the operator, must not stop the reconciliation of the others.
            RECONCILE_ERRORS.inc()
            log.error("%s/%s %s: %s", *key, type(error).__name__, error, extra=fields)
            log.debug("traceback", exc_info=error, extra=fields)
        finally:
            RECONCILE_DURATION.observe(time.perf_counter() - started)
        await asyncio.sleep(retry_delay_seconds(failures, first=FIRST_RETRY_SECONDS, jitter=RETRY_JITTER))
        return now(), True

    def _drop_finished(self, state: JobState, requeue_at: datetime | None) -> None:
        """Drops the state of a finished job that needs no reconciliation before its deletion."""
        job = state.job
        finished = finished_job(job, state.version)
        is_known = self._store.states.get(job.key) is state and job.key not in self._queued
        if finished is None or requeue_at not in (None, finished.delete_at) or not is_known:
            return
        self._store.keep_finished(job.key, finished)
