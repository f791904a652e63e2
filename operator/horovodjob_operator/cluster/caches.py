"""What the watches have shown, slim: jobs and the facts of their pods. Written by events and by answers to writes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from horovodjob.api.constants import Gang, Phase
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.events import Event
from horovodjob_operator.domain.observed import KubeletWarning, Observed, Refusal
from horovodjob_operator.domain.pod import Pod
from horovodjob_operator.domain.pod_facts import OwnedPod, owned_pod
from horovodjob_operator.domain.progress_report import ProgressReport

Key = tuple[str, str]
DELETED_UIDS = 10_000


@dataclass(slots=True)
class Record:
    """What the process knows about one job."""

    job: HorovodJob
    version: int
    """Newest resource version known; older events are echoes."""
    refusal: Refusal | None = None
    refused: str = ""
    """Name of the pod that was refused, or kind of the other object, or what the preflight check looks at."""
    refusals: int = 0
    secret_is_ours: bool = False
    """We made the Secret, or an earlier run of the operator may have: the job was under way when first seen."""
    keys_deleted: bool = False
    """The job has ended, and its Secrets are gone."""
    ours: set[str] = field(default_factory=set)
    """Kinds of the job's other objects that are known to be its own."""
    without: set[str] = field(default_factory=set)
    """Kinds of its other objects that it does not ask for, and that are known not to be there."""
    companions_checked_at: datetime | None = None
    """When the objects that it asks for were made, or last found to be there."""
    pod_group: Gang = Gang.NONE
    """Its PodGroup, where this process knows that the job has one for its present spec."""
    written_at: datetime | None = None
    gone: dict[str, Pod] = field(default_factory=dict)
    """The job's pods that are gone since the last pass, by name."""
    warning: KubeletWarning | None = None
    """What a kubelet last said of a pod that does not start."""
    kubelet_asked_at: datetime | None = None
    report: ProgressReport | None = None
    events: dict[Event, datetime] | None = None
    """Events still to be posted, with their times; None until those of the status that was found are among them."""
    unanswered: int | None = None
    """Version of the job when a write of its status got no answer: the API server may have stored it."""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """What is kept of a job that has ended, and for which there is nothing to do."""

    uid: str
    version: int
    phase: Phase
    completed_at: datetime
    delete_at: datetime | None
    """When runPolicy.ttlSecondsAfterFinished is over."""
    is_observed: bool = True
    """Whether the status is about the present spec."""


@dataclass(slots=True)
class Caches:
    """Jobs by key, pods by the key of their job. A job is in `jobs`, or in `finished`."""

    jobs: dict[Key, Record] = field(default_factory=dict)
    finished: dict[Key, FinishedJob] = field(default_factory=dict)
    _live_uids: dict[str, tuple[set[str], int]] = field(default_factory=dict)
    """What the last list of the live jobs of a namespace had, until its finished ones are listed as well."""
    pods: dict[Key, dict[str, Pod]] = field(default_factory=dict)
    _listed_namespaces: set[str] = field(default_factory=set)
    """Namespaces that pods were listed of; the empty string where all were."""
    deleted_uids: dict[str, None] = field(default_factory=dict)
    """Uids of the pods and jobs deleted last: an answer that has them may arrive after the event of their deletion."""

    def observed(self, record: Record) -> Observed:
        """The pods of this very job, and those of an earlier one that still have their names."""
        pods, uid = self.pods.get(record.job.key, {}).values(), record.job.metadata.uid
        return Observed(
            pods=tuple(pod for pod in pods if pod.owner_uid == uid),
            stale_owner_pods=tuple(pod for pod in pods if pod.owner_uid and pod.owner_uid != uid),
            deleted_pods=tuple(pod for pod in record.gone.values() if pod.owner_uid == uid),
            refusal=record.refusal,
            kubelet_warning=record.warning,
            progress_report=record.report,
            pod_group=record.pod_group,
        )

    def pod_seen(self, raw: Mapping[str, Any]) -> Key | None:
        """Takes in a pod as the API server shows it; the key of its job where that is news."""
        owned = owned_pod(raw)
        return owned.key if owned and self.keep(owned) else None

    def keep(self, owned: OwnedPod) -> bool:
        """Takes in the facts of a pod, unless newer ones are known; whether they were news."""
        if owned.pod.uid in self.deleted_uids:
            return False
        pods = self.pods.setdefault(owned.key, {})
        known = pods.get(owned.pod.name)
        if known and known.uid == owned.pod.uid and known.version >= owned.pod.version:
            return False
        pods[owned.pod.name] = owned.pod
        return known is None or replace(known, version=owned.pod.version) != owned.pod

    def pod_gone(self, raw: Mapping[str, Any]) -> Key | None:
        """Forgets a pod, but for what its job has still to be told; the key of its job."""
        owned = owned_pod(raw)
        if owned is None:
            return None
        self._note_deletion(owned.pod.uid)
        pods = self.pods.get(owned.key, {})
        known = pods.get(owned.pod.name)
        if known is None or known.uid != owned.pod.uid:
            return None
        self._forget(owned.key, owned.pod)
        return owned.key

    def pods_listed(self, uids: set[str], version: int, namespace: str = "") -> list[Key]:
        """Forgets the pods that a list of this version, of one namespace or of all, did not have.

        A pod that is known by a later version was created while the list was read. The result:
        the keys of jobs for which this is news: those of such pods, and after the first list all of the namespace.
        """
        first = not self.knows_pods(namespace)
        self._listed_namespaces.add(namespace)
        lost = [
            (key, pod)
            for key, pods in self.pods.items()
            if namespace in ("", key[0])
            for pod in pods.values()
            if pod.uid not in uids and pod.version <= version
        ]
        for key, pod in lost:
            self._forget(key, pod)
        return [key for key in self.jobs if namespace in ("", key[0])] if first else [key for key, _ in lost]

    def knows_pods(self, namespace: str) -> bool:
        """Whether the pods of a namespace have been listed."""
        return not self._listed_namespaces.isdisjoint(("", namespace))

    def has_pods_that_run(self, key: Key) -> bool:
        """Whether a job that has ended has pods that nothing has ended yet."""
        pods, uid = self.pods.get(key, {}).values(), self.uid(key)
        return any(
            (pod.is_active or pod.has_running_sidecars) and not pod.is_terminating and pod.owner_uid == uid
            for pod in pods
        )

    def keep_job(self, record: Record) -> None:
        """Takes in a job that is to be reconciled."""
        self.finished.pop(record.job.key, None)
        self.jobs[record.job.key] = record

    def keep_finished(self, key: Key, job: FinishedJob) -> None:
        """Drops what is known of a job that has ended, but for what its deletion and the metrics need."""
        self.jobs.pop(key, None)
        self.finished[key] = job

    def uid(self, key: Key) -> str | None:
        """The uid of the job that has this key, as far as is known."""
        if record := self.jobs.get(key):
            return record.job.metadata.uid
        finished = self.finished.get(key)
        return finished.uid if finished else None

    def job_gone(self, key: Key, uid: str) -> bool:
        """Takes in that a job is deleted; whether it was known."""
        self._note_deletion(uid)
        if self.uid(key) != uid:
            return False
        self.forget_job(key)
        return True

    def _note_deletion(self, uid: str) -> None:
        self.deleted_uids[uid] = None
        if len(self.deleted_uids) > DELETED_UIDS:
            del self.deleted_uids[next(iter(self.deleted_uids))]

    def forget_job(self, key: Key) -> None:
        """Drops a job that is not there any more."""
        self.jobs.pop(key, None)
        self.finished.pop(key, None)

    def live_jobs_listed(self, uids: set[str], version: int, namespace: str = "") -> None:
        """These are the jobs, of one namespace or of all, that had not ended when they were listed."""
        self._live_uids[namespace] = uids, version

    def finished_jobs_listed(self, uids: set[str], version: int, namespace: str = "") -> list[Key]:
        """Forgets the jobs that are neither among these nor among the live ones listed before; their keys.

        A job of a later version than that of the list was created, or ended, since.
        """
        live, live_version = self._live_uids.pop(namespace, (set[str](), 0))
        known = [(key, record.job.metadata.uid, record.version, live_version) for key, record in self.jobs.items()]
        known += [(key, job.uid, job.version, version) for key, job in self.finished.items()]
        gone = [
            key
            for key, uid, known_version, listed_version in known
            if namespace in ("", key[0]) and known_version <= listed_version and uid not in live and uid not in uids
        ]
        for key in gone:
            self.forget_job(key)
        return gone

    def _forget(self, key: Key, pod: Pod) -> None:
        pods = self.pods[key]
        del pods[pod.name]
        if not pods:
            del self.pods[key]
        # Its conditions may have come with the very news that it is gone. How its container ended says nothing more.
        if record := self.jobs.get(key):
            record.gone[pod.name] = replace(pod, is_terminating=True, termination=None)

    def mark(self, job: HorovodJob, pods: Iterable[Pod], **facts: Any) -> None:
        """Notes what a write has just made true, before the watch says so."""
        known = self.pods.get(job.key, {})
        for pod in pods:
            if pod.name in known and known[pod.name].uid == pod.uid:
                known[pod.name] = replace(known[pod.name], **facts)

    def all_jobs(self) -> Iterator[HorovodJob]:
        """Every job but those that have ended and need nothing more."""
        return (record.job for record in tuple(self.jobs.values()))

    def finished_phases(self) -> Iterator[tuple[str, Phase]]:
        """Namespace and phase of each of those."""
        return ((key[0], job.phase) for key, job in tuple(self.finished.items()))
