"""The work queue: reconciles one job at a time per key, always with its newest state."""

import asyncio
import logging
import time
from datetime import datetime

from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore, finished_job
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain import names
from horovodjob_operator.errors import Conflict, Gone, NameInUse, OperatorError
from horovodjob_operator.kube.pod_cache import Key, PodCache
from horovodjob_operator.kube.requests.retries import retry_delay_seconds
from horovodjob_operator.metrics import RECONCILE_DURATION, RECONCILE_ERRORS, WORKQUEUE_DURATION

FIRST_RETRY_SECONDS, RETRY_JITTER = 0.5, 0.3
# After this number of failed reconciliations in a row, the status of the job reports the error.
REPORTED_FAILURES = 3
# The pause between two reconciliations of a job. Its pods change one by one, so it grows with the workers: by 20 µs
# each, eight times what a reconciliation needs for one.
PAUSE_SECONDS, PAUSE_SECONDS_PER_WORKER = 0.03, 2e-5
# The longest pause if each reconciliation requires the next one, and no event does.
LONGEST_PAUSE_SECONDS = 1.0
log = logging.getLogger("horovodjob.work_queue")


class WorkQueue:
    """Reconciles a job once for a burst of events, and again at the time that the reconciliation returns."""

    def __init__(self, store: JobStore, pods: PodCache, reconciler: Reconciler) -> None:
        self._store, self._pods, self._reconciler = store, pods, reconciler
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._queued: dict[Key, float] = {}
        """Jobs that wait for their reconciliation, with the time of the performance counter when they were enqueued."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._errors: dict[Key, Exception] = {}
        """The error of the last reconciliation of a job, if it has failed."""

    @property
    def depth(self) -> int:
        """Number of the jobs that wait for their reconciliation."""
        return len(self._queued)

    @property
    def timers(self) -> int:
        """Number of the jobs that are enqueued for a later time."""
        return len(self._timers)

    async def close(self) -> None:
        """Starts no further reconciliation, and waits at most five seconds for those that run."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        await self.wait_for_current(5)

    async def wait_for_current(self, seconds: float) -> None:
        """Waits for the reconciliations that run, at most this time."""
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
        if self._is_closed or not self._store.find(key) or not self._pods.has_listed(key[0]):
            return
        self._queued.setdefault(key, time.perf_counter())
        if key in self._running:
            return
        self.forget(key)
        self._running[key] = asyncio.create_task(self._run(key), name=f"reconcile {key[0]}/{key[1]}")

    def enqueue_at(self, key: Key, at: datetime) -> None:
        """Enqueues a job at a later time, unless an event enqueues it earlier."""
        self.forget(key)
        if self._is_closed or not self._store.find(key):
            return
        seconds = (at - now()).total_seconds()
        # A time that has passed is one that passed during the reconciliation.
        delay = seconds if seconds > 0 else LONGEST_PAUSE_SECONDS
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self.enqueue, key)

    async def _run(self, key: Key) -> None:
        """Reconciles a job until no event and no effect requires another reconciliation."""
        failures = repeats = 0
        requeue: Requeue | None = Requeue()
        try:
            while self._store.find(key) and not self._is_closed:
                if queued_at := self._queued.pop(key, None):
                    WORKQUEUE_DURATION.observe(time.perf_counter() - queued_at)
                requeue = await self._reconcile(key)
                if requeue is None:
                    await asyncio.sleep(retry_delay_seconds(failures, first=FIRST_RETRY_SECONDS, jitter=RETRY_JITTER))
                    failures += 1
                    if failures >= REPORTED_FAILURES:
                        await self._report_error(key)
                    continue
                failures, repeats = 0, 0 if key in self._queued else repeats + 1
                if not requeue.is_soon and key not in self._queued:
                    break
                await asyncio.sleep(self._pause(key, repeats))
        finally:
            del self._running[key]
            self._queued.pop(key, None)
            self._errors.pop(key, None)
        if requeue and requeue.at:
            self.enqueue_at(key, requeue.at)

    def _pause(self, key: Key, repeats: int) -> float:
        state = self._store.states.get(key)
        workers = state.job.spec.worker.replicas if state else 0
        return min((PAUSE_SECONDS + workers * PAUSE_SECONDS_PER_WORKER) * 2.0**repeats, LONGEST_PAUSE_SECONDS)

    async def _reconcile(self, key: Key) -> Requeue | None:
        """When the next reconciliation is due; None if this one has failed."""
        started = time.perf_counter()
        fields = {"namespace": key[0], "job": key[1]}
        try:
            state = self._store.states.get(key)
            if state is None:
                return await self._reconciler.delete_expired(key, self._store.finished[key], now())
            fields = names.log_fields(state.job)
            requeue = await self._reconciler.reconcile(state)
            if state.error:
                state.error, requeue = "", requeue | Requeue(is_soon=True)  # The status still has the error.
            self._drop_finished(state, requeue)
            return requeue
        except (Gone, Conflict) as error:
            # The job has changed, or it is deleted with or without its namespace: the watch will report it.
            log.debug("%s/%s %s", *key, error, extra=fields)
            return Requeue()
        except NameInUse as error:
            self._errors.pop(key, None)  # The status says what the job waits for.
            RECONCILE_ERRORS.inc()
            log.info("%s/%s %s", *key, error, extra=fields)
        except OperatorError as error:
            self._errors[key] = error
            RECONCILE_ERRORS.inc()
            log.warning("%s/%s %s", *key, error, extra=fields)
        except Exception as error:
            # An error of one job, even a defect of the operator, must not stop the reconciliation of the others.
            self._errors[key] = error
            RECONCILE_ERRORS.inc()
            log.error("%s/%s %s: %s", *key, type(error).__name__, error, extra=fields)
            log.debug("traceback", exc_info=error, extra=fields)
        finally:
            RECONCILE_DURATION.observe(time.perf_counter() - started)
        return None

    async def _report_error(self, key: Key) -> None:
        """Writes an error that repeats to the status of the job."""
        state, error = self._store.states.get(key), self._errors.get(key)
        if state is None or error is None:
            return
        try:
            await self._reconciler.report_error(state, error)
        except Exception as failure:  # It must not end the task; the log has the error of the job.
            log.warning("%s/%s its error cannot be reported: %s", *key, failure, extra=names.log_fields(state.job))

    def _drop_finished(self, state: JobState, requeue: Requeue) -> None:
        """Drops the state of a finished job that needs no reconciliation before its deletion."""
        job = state.job
        finished = finished_job(job, state.version)
        is_known = self._store.states.get(job.key) is state and job.key not in self._queued
        if finished is None or requeue.is_soon or requeue.at not in (None, finished.delete_at) or not is_known:
            return
        self._store.keep_finished(job.key, finished)
