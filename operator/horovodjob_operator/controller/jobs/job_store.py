"""The jobs that the process knows, by namespace and name; of finished ones it knows little, because there are many."""

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.constants import ConditionType, Phase
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.job_errors import JobFailure, job_failure
from horovodjob_operator.kube.pod_cache import DeletedUids, Key
from horovodjob_operator.kueue.queue import uses_queue

# How many failed jobs are remembered after their deletion.
DELETED_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job with a completion time, and with a status that is about the current spec."""

    uid: str
    version: int
    phase: Phase
    delete_at: datetime | None
    """When runPolicy.ttlSecondsAfterFinished has passed."""
    failure: JobFailure | None = None


def finished_job_from_raw(raw: Mapping[str, Any], metadata: Metadata) -> FinishedJob | None:
    """A stored job; None if it is not finished. Does not parse the whole job, because there are many."""
    status = raw.get("status") or {}
    try:
        completed_at, phase = datetime.fromisoformat(status["completionTime"]), Phase(status["phase"])
    except (KeyError, TypeError, ValueError):
        return None
    if status.get("observedGeneration") != metadata.generation or _holds_quota(status):
        return None
    seconds = ((raw.get("spec") or {}).get("runPolicy") or {}).get("ttlSecondsAfterFinished")
    delete_at = None if seconds is None else completed_at + timedelta(seconds=seconds)
    failure = JobFailure(_failure_reason(status), completed_at) if phase is Phase.FAILED else None
    return FinishedJob(metadata.uid, int(metadata.resource_version), phase, delete_at, failure)


def _holds_quota(status: Mapping[str, Any]) -> bool:
    return any(one.get("type") == ConditionType.QUOTA_RELEASED for one in status.get("conditions") or ())


def _failure_reason(status: Mapping[str, Any]) -> str:
    """The reason of the condition Failed, of which there are few different ones."""
    reasons = (one.get("reason") for one in status.get("conditions") or () if one.get("type") == ConditionType.FAILED)
    return sys.intern(str(next(reasons, "")))


def finished_job(job: HorovodJob, version: int) -> FinishedJob | None:
    """A job in memory; None if it is not finished."""
    status, seconds = job.status, job.spec.run_policy.ttl_seconds_after_finished
    if status.phase is None or status.completion_time is None or not status.is_over:
        return None
    delete_at = None if seconds is None else status.completion_time + timedelta(seconds=seconds)
    return FinishedJob(job.metadata.uid, version, status.phase, delete_at, job_failure(status))


class JobStore:
    """Each job is in `states`, or in `finished` if it is finished and needs no reconciliation now."""

    def __init__(self, states: Iterable[JobState] = ()) -> None:
        self.states: dict[Key, JobState] = {state.job.key: state for state in states}
        self.finished: dict[Key, FinishedJob] = {}
        self.deleted_uids = DeletedUids()
        self.queue_used = asyncio.Event()
        """Set when a job with a queue is stored."""
        self._deleted_failures: deque[tuple[Key, JobFailure]] = deque(maxlen=DELETED_FAILURES)
        """How deleted jobs failed, so that a job with ttlSecondsAfterFinished 0 has its alert, too."""
        self._unfinished: dict[str, tuple[set[str], int]] = {}
        """UIDs and version of the last list of unfinished jobs of a namespace, until its finished ones are listed."""

    def keep(self, state: JobState) -> None:
        """Stores a job to reconcile."""
        self.finished.pop(state.job.key, None)
        self.states[state.job.key] = state

    def keep_finished(self, key: Key, job: FinishedJob) -> None:
        """Stores a finished job, and drops its state."""
        self.states.pop(key, None)
        self.finished[key] = job

    def forget(self, key: Key) -> None:
        """Drops a job that does not exist, or that the operator leaves alone."""
        if failure := self._failure(key):
            self._deleted_failures.append((key, failure))
        if state := self.states.pop(key, None):
            state.is_deleted = True
        self.finished.pop(key, None)

    def forget_namespace(self, namespace: str) -> list[Key]:
        """Drops all jobs of a namespace, and returns their keys."""
        keys = [key for key in (*self.states, *self.finished) if key[0] == namespace]
        for key in keys:
            self.forget(key)
        return keys

    def find(self, key: Key) -> JobState | FinishedJob | None:
        """What is known of the job with this key."""
        return self.states.get(key) or self.finished.get(key)

    def states_in(self, namespace: str) -> list[JobState]:
        """The jobs of a namespace with a state; those of all if it is empty."""
        return [state for key, state in self.states.items() if namespace in ("", key[0])]

    def delete(self, key: Key, uid: str) -> bool:
        """Drops a deleted job, and returns whether it was known."""
        self.deleted_uids.add(uid)
        known = self.find(key)
        if known is None or known.uid != uid:
            return False
        self.forget(key)
        return True

    def unfinished_jobs_listed(self, uids: set[str], version: int, namespace: str = "") -> None:
        """Stores a complete list of the unfinished jobs of a namespace, or of all."""
        self._unfinished[namespace] = uids, version

    def finished_jobs_listed(self, uids: set[str], version: int, namespace: str = "") -> list[Key]:
        """Drops the jobs that neither this list nor that of the unfinished jobs contains, and returns their keys.

        A job with a later version than the list was created, or finished, after it.
        """
        unfinished, unfinished_version = self._unfinished.pop(namespace, (set[str](), 0))
        known: list[tuple[Key, JobState | FinishedJob, int]] = []
        known += [(key, state, unfinished_version) for key, state in self.states.items()]
        known += [(key, job, version) for key, job in self.finished.items()]
        listed = uids | unfinished
        deleted = [
            key
            for key, job, listed_version in known
            if namespace in ("", key[0]) and job.version <= listed_version and job.uid not in listed
        ]
        for key in deleted:
            self.forget(key)
        return deleted

    def jobs(self) -> Iterator[HorovodJob]:
        """The jobs with a state."""
        return (state.job for state in tuple(self.states.values()))

    async def until_queue_used(self) -> bool:
        """Returns as soon as an unfinished job has a queue, or had one, and whether that took time."""
        has_waited = False
        while not any(uses_queue(job) for job in self.jobs()):
            self.queue_used.clear()
            has_waited = await self.queue_used.wait()
        return has_waited

    def finished_phases(self) -> Iterator[tuple[str, Phase]]:
        """Namespace and phase of each finished job."""
        return ((key[0], job.phase) for key, job in tuple(self.finished.items()))

    def failures_since(self, time: datetime) -> Iterator[tuple[Key, JobFailure]]:
        """The jobs that failed after this time, and how; the newest of those with the same name."""
        newest = dict(tuple(self._deleted_failures))
        newest |= {key: failure for key in (*self.states, *self.finished) if (failure := self._failure(key))}
        return ((key, failure) for key, failure in newest.items() if failure.at > time)

    def _failure(self, key: Key) -> JobFailure | None:
        state, finished = self.states.get(key), self.finished.get(key)
        return job_failure(state.job.status) if state else finished.failure if finished else None

    def namespaces(self) -> set[str]:
        """The namespaces with jobs."""
        return {key[0] for key in (*self.states, *self.finished)}
