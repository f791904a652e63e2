"""What the watches show is taken in, and the jobs that it concerns are enqueued."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import kopf

from horovodjob.api.constants import GROUP, OPERATOR_NAME, PLURAL, VERSION
from horovodjob.api.job import Metadata
from horovodjob_operator.cluster.caches import Caches, FinishedJob, Key
from horovodjob_operator.cluster.pod_watch import silence_seconds
from horovodjob_operator.controller.stored_jobs import ended_job, new_record, parsed_job
from horovodjob_operator.controller.work_queue import WorkQueue
from horovodjob_operator.domain.job_defaults import JobDefaults

# Between a watch that the API server refuses, as it no longer has the version, and the list of all jobs.
RELIST_SECONDS = 1.0


class EventHandlers:
    """Takes in what the watches show, and enqueues the jobs that it concerns."""

    def __init__(self, caches: Caches, work_queue: WorkQueue, defaults: JobDefaults) -> None:
        self._caches, self._work_queue, self._defaults = caches, work_queue, defaults

    def job_seen(self, raw: Mapping[str, Any]) -> None:
        """A job is there, or has changed."""
        metadata = Metadata.model_validate(raw["metadata"])
        key, version = (metadata.namespace, metadata.name), int(metadata.resource_version)
        known, finished = self._caches.jobs.get(key), self._caches.finished.get(key)
        same = known is not None and known.job.metadata.uid == metadata.uid
        if known and same and version <= known.version:
            return
        if finished and finished.uid == metadata.uid and version <= finished.version:
            return
        if metadata.uid in self._caches.deleted_uids:
            return  # in a list that was read before its deletion
        policy = (raw.get("spec") or {}).get("runPolicy") or {}
        if policy.get("managedBy", OPERATOR_NAME) != OPERATOR_NAME:
            return  # another controller's job; that can never change
        if not (same and self._work_queue.is_open) and (ended := ended_job(raw, metadata)):
            self._finished_job_seen(key, ended)
            return
        if known and same:
            job, refusal = parsed_job(raw, metadata, self._defaults)
            changed = job.metadata.generation != known.job.metadata.generation
            known.job, known.version = job, version
            if changed:
                known.refusal, known.refusals = refusal, 0
        else:
            self._caches.keep_job(new_record(raw, metadata, self._defaults))
        self._work_queue.enqueue(key)

    def _finished_job_seen(self, key: Key, job: FinishedJob) -> None:
        first = self._caches.uid(key) != job.uid
        self._work_queue.forget(key)
        self._caches.keep_finished(key, job)
        if first:
            self._work_queue.finished(key)
        elif not job.is_observed:
            self._work_queue.enqueue(key)
        elif job.delete_at:
            self._work_queue.look_at(key, job.delete_at)

    def job_gone(self, raw: Mapping[str, Any]) -> None:
        """A job is deleted; Kubernetes deletes what it owns."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if self._caches.job_gone(key, raw["metadata"]["uid"]):
            self._work_queue.forget(key)

    def finished_jobs_listed(self, uids: set[str], version: int, namespace: str) -> None:
        """These are all jobs of a namespace, or of the cluster, that have ended; unknown ones are deleted."""
        for key in self._caches.finished_jobs_listed(uids, version, namespace):
            self._work_queue.forget(key)

    def pod_seen(self, raw: Mapping[str, Any]) -> None:
        """A pod is there, or has changed."""
        if (key := self._caches.pod_seen(raw)) in self._caches.jobs:
            self._work_queue.enqueue(key)

    def pod_gone(self, raw: Mapping[str, Any]) -> None:
        """A pod is deleted."""
        if (key := self._caches.pod_gone(raw)) in self._caches.jobs:
            self._work_queue.enqueue(key)


def register(registry: kopf.OperatorRegistry, events: EventHandlers) -> None:
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
