"""Events in, passes out: one pass at a time per job, on the newest state. The only place that reads the clock."""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf
from pydantic import ValidationError

from horovodjob.api.job import HorovodJob, Metadata, parse_status
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.vocabulary import GROUP, OPERATOR_NAME, PLURAL, VERSION, ConditionType, Reason
from horovodjob_operator.cluster.caches import Caches, Key, Record
from horovodjob_operator.cluster.watch import silence_seconds
from horovodjob_operator.domain import names
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.domain.observed import Refusal
from horovodjob_operator.errors import Gone, NameTaken, OperatorError
from horovodjob_operator.metrics import RECONCILE_DURATION, RECONCILE_ERRORS, WORKQUEUE_DURATION
from horovodjob_operator.reconcile import Reconciler

RETRY_LONGEST_SECONDS = 30.0
# Between a watch that the API server refuses, as it no longer has the version, and the list of all jobs.
RELIST_SECONDS = 1.0
# Between the passes of a big job, which take an eighth of this: its pods change one by one, in their thousands.
PAUSE_SECONDS_PER_WORKER = 2e-5
LARGEST_WITHOUT_PAUSE = 200
log = logging.getLogger("horovodjob.handlers")


def now() -> datetime:
    """The present moment, UTC."""
    return datetime.now(UTC)


class Passes:
    """Runs passes: a burst of events of a job is one pass, an error is tried again with growing delay."""

    def __init__(self, caches: Caches, reconciler: Reconciler) -> None:
        self._caches, self._reconciler = caches, reconciler
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._queued: dict[Key, float] = {}
        """Jobs that wait for a pass, with the moment on the performance counter since when."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._open = False

    @property
    def depth(self) -> int:
        """How many jobs wait for a pass."""
        return len(self._queued)

    @property
    def timers(self) -> int:
        """How many jobs have their next pass at a later moment."""
        return len(self._timers)

    def open(self) -> None:
        """Lets passes run: this process is the leader and its caches are full."""
        self._open = True
        for key in tuple(self._caches.jobs):
            self.kick(key)

    async def close(self) -> None:
        """No more passes; those under way have five seconds to end."""
        self._open = False
        for timer in self._timers.values():
            timer.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=5)

    async def resync(self, seconds: float) -> None:
        """A pass for every job, spread over this time."""
        keys = tuple(self._caches.jobs)
        for key in keys:
            await asyncio.sleep(seconds / len(keys))
            self.kick(key)
        if not keys:
            await asyncio.sleep(seconds)

    def forget(self, key: Key) -> None:
        """A job is deleted: its next pass is cancelled."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def kick(self, key: Key) -> None:
        """There is news about a job."""
        if not self._open or key not in self._caches.jobs or not self._caches.knows_pods(key[0]):
            return
        self._queued.setdefault(key, time.perf_counter())
        if key in self._running:
            return
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._running[key] = asyncio.create_task(self._run(key), name=f"pass {key[0]}/{key[1]}")

    async def _run(self, key: Key) -> None:
        failures, again = 0, None
        try:
            while (record := self._caches.jobs.get(key)) and self._open:
                if queued_at := self._queued.pop(key, None):
                    WORKQUEUE_DURATION.observe(time.perf_counter() - queued_at)
                again, failed = await self._pass(record, failures)
                failures = failures + 1 if failed else 0
                if (workers := record.job.spec.worker.replicas) > LARGEST_WITHOUT_PAUSE:
                    await asyncio.sleep(workers * PAUSE_SECONDS_PER_WORKER)
                if key not in self._queued and not (again and again <= now()):
                    break
        finally:
            del self._running[key]
            self._queued.pop(key, None)
        if again and key in self._caches.jobs and self._open:
            delay = max((again - now()).total_seconds(), 0)
            self._timers[key] = asyncio.get_running_loop().call_later(delay, self.kick, key)

    async def _pass(self, record: Record, failures: int) -> tuple[datetime | None, bool]:
        started = time.perf_counter()
        try:
            return await self._reconciler.reconcile(record), False
        except (Gone, NameTaken) as error:
            # The job or its namespace is gone: the watch will say so. Until then there is nothing to do for it.
            log.debug("%s/%s %s", *record.job.key, error, extra=names.log_fields(record.job))
            return None, False
        except OperatorError as error:
            RECONCILE_ERRORS.inc()
            log.warning("%s/%s %s", *record.job.key, error, extra=names.log_fields(record.job))
        except Exception as error:
            # One job's trouble, even a defect of ours, must not stop the passes of the others.
            RECONCILE_ERRORS.inc()
            fields = names.log_fields(record.job)
            log.error("%s/%s %s: %s", *record.job.key, type(error).__name__, error, extra=fields)
            log.debug("traceback", exc_info=error, extra=fields)
        finally:
            RECONCILE_DURATION.observe(time.perf_counter() - started)
        delay = min(RETRY_LONGEST_SECONDS, 0.5 * 2 ** min(failures, 10)) * random.uniform(0.7, 1)
        await asyncio.sleep(delay)
        return now(), True


class Events:
    """Takes in what the watches show, and kicks passes."""

    def __init__(self, caches: Caches, passes: Passes, defaults: JobDefaults) -> None:
        self._caches, self._passes, self._defaults = caches, passes, defaults

    def job_seen(self, raw: Mapping[str, Any]) -> None:
        """A job is there, or has changed."""
        metadata = Metadata.model_validate(raw["metadata"])
        key, version = (metadata.namespace, metadata.name), int(metadata.resource_version)
        known = self._caches.jobs.get(key)
        same = known is not None and known.job.metadata.uid == metadata.uid
        if known and same and version <= known.version:
            return
        policy = (raw.get("spec") or {}).get("runPolicy") or {}
        if policy.get("managedBy", OPERATOR_NAME) != OPERATOR_NAME:
            return  # another controller's job; that can never change
        job, refusal = _parsed(raw, metadata, self._defaults)
        if known and same:
            changed = job.metadata.generation != known.job.metadata.generation
            known.job, known.version = job, version
            if changed:
                known.refusal, known.refusals = refusal, 0
        else:
            conflict = (job.status.condition(ConditionType.STALLED) or None) and any(
                condition.reason == Reason.NAME_CONFLICT for condition in job.status.conditions
            )
            self._caches.jobs[key] = Record(
                job, version, refusal, secret_is_ours=job.status.phase is not None and not conflict
            )
        self._passes.kick(key)

    def job_gone(self, raw: Mapping[str, Any]) -> None:
        """A job is deleted; Kubernetes deletes what it owns."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        known = self._caches.jobs.get(key)
        if known and known.job.metadata.uid == raw["metadata"]["uid"]:
            del self._caches.jobs[key]
            self._passes.forget(key)

    def jobs_listed(self, uids: set[str], namespace: str) -> None:
        """These are all jobs of a namespace, or of the cluster; others are deleted."""
        for key in self._caches.jobs_listed(uids, namespace):
            self._passes.forget(key)

    def pod_seen(self, raw: Mapping[str, Any]) -> None:
        """A pod is there, or has changed."""
        if key := self._caches.pod_seen(raw):
            self._passes.kick(key)

    def pod_gone(self, raw: Mapping[str, Any]) -> None:
        """A pod is deleted."""
        if key := self._caches.pod_gone(raw):
            self._passes.kick(key)


def _parsed(raw: Mapping[str, Any], metadata: Metadata, defaults: JobDefaults) -> tuple[HorovodJob, Refusal | None]:
    """The job with the cluster's defaults; one that does not parse comes with the refusal that tells its author."""
    status = parse_status(raw.get("status"))
    try:
        stored = HorovodJobSpec.model_validate(raw["spec"])
        spec = defaults.applied(stored)
        return HorovodJob(metadata=metadata, spec=spec, status=status, stored_spec=stored), None
    except (ValidationError, KeyError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "is missing"}
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        words = f"{where}: {first['msg']}; this version of the operator leaves the job alone"
        refusal = Refusal(Reason.INVALID_SPEC, words, now() + timedelta(days=36500), unreadable=True)
        return HorovodJob(metadata=metadata, spec=HorovodJobSpec(image="-", command=("-",)), status=status), refusal


def register(registry: kopf.OperatorRegistry, events: Events) -> None:
    """Registers the one handler: events of HorovodJobs. It returns nothing, or kopf would write it into the status."""

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def job_event(event: Mapping[str, Any], **_: Any) -> None:
        raw = event["object"]
        if event["type"] == "DELETED":
            events.job_gone(raw)
        else:
            events.job_seen(raw)


class EndlessBackoffs:
    """Delays between the tries of one of kopf's requests, in seconds.

    Kopf ends the process after the last one: a namespace without rights would take all others with it.
    """

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 2, 5, 10), itertools.repeat(20))


def kopf_settings(timeout_seconds: int) -> kopf.OperatorSettings:
    """Kopf for watching only: no annotations, no finalizers, no scanning of all resources, no events of its own."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = timeout_seconds
    settings.watching.client_timeout = timeout_seconds + 30
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = RELIST_SECONDS
    settings.watching.inactivity_timeout = silence_seconds(timeout_seconds)
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.queueing.idle_timeout = 1
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage([])
    return settings
