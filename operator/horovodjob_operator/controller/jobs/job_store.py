"""The jobs that the process knows, by namespace and name."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.jobs.finished_job import FinishedJob
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.job_errors import JobFailure, job_failure
from horovodjob_operator.domain.queues.queue import uses_queue
from horovodjob_operator.kube.caches.pod_cache import DeletedUids, Key


class JobStore:
    """Each job is in `states`, or in `finished` if it is finished and needs no reconciliation now."""

    def __init__(self, states: Iterable[JobState] = ()) -> None:
        self.states: dict[Key, JobState] = {state.job.key: state for state in states}
        self.finished: dict[Key, FinishedJob] = {}
        self.deleted_uids = DeletedUids()
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
        if state := self.states.pop(key, None):
            state.is_deleted = True
        self.finished.pop(key, None)

    def forget_namespace(self, namespace: str) -> list[Key]:
        """Drops all jobs of a namespace, and returns their keys."""
        keys = [key for key in (*self.states, *self.finished) if key[0] == namespace]
        for key in keys:
            self.forget(key)
        return keys

    def uid(self, key: Key) -> str | None:
        """UID of the job with this key; None if there is none."""
        if state := self.states.get(key):
            return state.job.metadata.uid
        finished = self.finished.get(key)
        return finished.uid if finished else None

    def delete(self, key: Key, uid: str) -> bool:
        """Drops a deleted job, and returns whether it was known."""
        self.deleted_uids.add(uid)
        if self.uid(key) != uid:
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
        known = [(key, state.job.metadata.uid, state.version, unfinished_version) for key, state in self.states.items()]
        known += [(key, job.uid, job.version, version) for key, job in self.finished.items()]
        listed = uids | unfinished
        deleted = [
            key
            for key, uid, known_version, listed_version in known
            if namespace in ("", key[0]) and known_version <= listed_version and uid not in listed
        ]
        for key in deleted:
            self.forget(key)
        return deleted

    def jobs(self) -> Iterator[HorovodJob]:
        """The jobs with a state."""
        return (state.job for state in tuple(self.states.values()))

    def has_queued_jobs(self) -> bool:
        """Whether an unfinished job has a queue, or had one."""
        return any(uses_queue(job) for job in self.jobs())

    def finished_phases(self) -> Iterator[tuple[str, Phase]]:
        """Namespace and phase of each finished job."""
        return ((key[0], job.phase) for key, job in tuple(self.finished.items()))

    def failures_since(self, time: datetime) -> Iterator[tuple[Key, JobFailure]]:
        """The jobs that failed after this time, and how."""
        failures = [(key, job_failure(state.job.status)) for key, state in tuple(self.states.items())]
        failures += [(key, job.failure) for key, job in tuple(self.finished.items())]
        return ((key, failure) for key, failure in failures if failure and failure.at > time)

    def namespaces(self) -> set[str]:
        """The namespaces with jobs."""
        return {key[0] for key in (*self.states, *self.finished)}
