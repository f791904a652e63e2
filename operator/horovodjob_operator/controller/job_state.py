"""What the process knows of one unfinished job in addition to its status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from horovodjob.api.constants import Gang, Phase
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.events import Event
from horovodjob_operator.domain.observed import KubeletWarning, Observed, Refusal
from horovodjob_operator.domain.pod import Pod
from horovodjob_operator.domain.progress_report import ProgressReport


@dataclass(slots=True)
class JobState:
    """A job and its state. Only the methods of this class write the attributes.

    Event handlers and the server for progress reports call the first group of methods, the reconciler the others. A new
    process starts without this state, so nothing in it may be necessary for a correct decision.
    """

    job: HorovodJob
    version: int
    """Newest known resource version; events with an older one are outdated."""
    refusal: Refusal | None = None
    refused_object: str = ""
    """Name of the refused pod, kind of another refused object, or what the preflight check concerns."""
    refusal_count: int = 0
    """Refusals in a row."""
    owns_secret: bool = False
    """This process has created the Secret, or an earlier one can have: the job had a status when it was first read."""
    has_unconfirmed_secret: bool = False
    """The creation of the Secret had no response: the API server may have stored it."""
    has_deleted_secrets: bool = False
    """The job is finished, and its Secrets are deleted."""
    owned_kinds: set[str] = field(default_factory=set)
    """Kinds of the objects, other than pods, that are known to belong to the job."""
    absent_kinds: set[str] = field(default_factory=set)
    """Kinds of the optional objects that the spec does not enable and that are known not to exist."""
    auxiliary_checked_at: datetime | None = None
    """When the optional objects were created, or last found to exist."""
    pod_group: Gang = Gang.NONE
    """Kind of the PodGroup, if this process knows that the job has one for its current spec."""
    status_written_at: datetime | None = None
    deleted_pods: dict[str, Pod] = field(default_factory=dict)
    """Pods deleted since the last reconciliation, by name."""
    kubelet_warning: KubeletWarning | None = None
    kubelet_events_requested_at: datetime | None = None
    progress_report: ProgressReport | None = None
    pending_events: dict[Event, datetime] | None = None
    """Events to post, with their times; None until those of the recorded status are among them."""
    unconfirmed_version: int | None = None
    """Version of the job before a write of its status that had no response: the API server may have stored it."""

    def update(self, job: HorovodJob, version: int, refusal: Refusal | None) -> None:
        """Stores a newer version of the job. A changed spec replaces the refusal of the old one."""
        has_changed = job.metadata.generation != self.job.metadata.generation
        self.job, self.version = job, version
        if has_changed:
            self.refusal, self.refusal_count = refusal, 0

    def add_deleted_pod(self, pod: Pod) -> None:
        """Keeps the last state of a deleted pod for the next reconciliation."""
        # The event of the deletion can be the first with the pod's conditions. The termination has no more meaning.
        self.deleted_pods[pod.name] = replace(pod, is_terminating=True, termination=None)

    def add_report(self, report: ProgressReport) -> None:
        """Stores the newest progress report."""
        self.progress_report = report

    def observed(self, pods: Iterable[Pod]) -> Observed:
        """The facts for decisions, given the pods with the label of the job."""
        pods, uid = tuple(pods), self.job.metadata.uid
        return Observed(
            pods=tuple(pod for pod in pods if pod.owner_uid == uid),
            stale_owner_pods=tuple(pod for pod in pods if pod.owner_uid and pod.owner_uid != uid),
            deleted_pods=tuple(pod for pod in self.deleted_pods.values() if pod.owner_uid == uid),
            refusal=self.refusal,
            kubelet_warning=self.kubelet_warning,
            progress_report=self.progress_report,
            pod_group=self.pod_group,
        )

    def status_written(self, status: HorovodJobStatus, version: int, now: datetime) -> None:
        """Stores a written status, unless the watch has already reported a newer version."""
        self.unconfirmed_version = None
        if version > self.version:
            metadata = self.job.metadata.model_copy(update={"resource_version": str(version)})
            self.version, self.job = version, self.job.model_copy(update={"metadata": metadata, "status": status})
        self.status_written_at = now
        if status.phase is Phase.SUSPENDED:
            self.progress_report = None

    def status_unconfirmed(self, version: int) -> None:
        """Records that the write of a status had no response; before the write, `version` was the newest."""
        self.unconfirmed_version = version

    def forget_deleted_pods(self) -> None:
        """Drops the deleted pods: the status contains the consequences."""
        self.deleted_pods.clear()

    @property
    def may_lack_events(self) -> bool:
        """Whether a status is recorded of which this process has not posted the events."""
        is_recorded = self.unconfirmed_version is not None and self.version > self.unconfirmed_version
        return self.pending_events is None or is_recorded

    def recover_events(self, events: Mapping[Event, datetime]) -> None:
        """Adds the events of the recorded status."""
        self.unconfirmed_version = None
        self.add_events(events)

    def add_events(self, events: Mapping[Event, datetime]) -> None:
        """Adds events to post."""
        self.pending_events = {**(self.pending_events or {}), **events}

    def remove_event(self, event: Event) -> None:
        """Removes an event that is posted, or that cannot be posted."""
        if self.pending_events:
            del self.pending_events[event]

    def refuse(self, refused_object: str, refusal: Refusal) -> None:
        """Records that an object of the job cannot be created."""
        self.refusal_count += 1
        self.refused_object, self.refusal = refused_object, refusal

    def accept(self) -> None:
        """Records that the objects of the job can be created."""
        self.refusal = None

    def secret_created(self) -> None:
        """Records that the job has its Secret."""
        self.owns_secret = True
        self.owned_kinds.add("Secret")

    def secret_unconfirmed(self) -> None:
        """Records that the creation of the Secret had no response."""
        self.has_unconfirmed_secret = True

    def secrets_deleted(self) -> None:
        """Records that the Secrets of the finished job are deleted."""
        self.has_deleted_secrets = True

    def object_exists(self, kind: str) -> None:
        """Records that the job has its optional object of this kind."""
        self.owned_kinds.add(kind)
        self.absent_kinds.discard(kind)

    def object_is_absent(self, kind: str) -> None:
        """Records that the job has no object of this kind."""
        self.owned_kinds.discard(kind)
        self.absent_kinds.add(kind)

    def auxiliary_objects_checked(self, now: datetime) -> None:
        """Records that all optional objects of the spec exist."""
        self.auxiliary_checked_at = now

    def pod_group_created(self, kind: Gang) -> None:
        """Records that the job has a PodGroup for its current spec."""
        self.pod_group = kind

    def pod_group_deleted(self) -> None:
        """Records that the job has no PodGroup."""
        self.pod_group = Gang.NONE

    def kubelet_events_requested(self, now: datetime) -> None:
        """Records a request for kubelet events, which counts even if it fails."""
        self.kubelet_events_requested_at = now

    def kubelet_events_read(self, warning: KubeletWarning | None) -> None:
        """Stores the newest kubelet event about a pod that does not start."""
        self.kubelet_warning = warning

    def forget_kubelet_events(self) -> None:
        """Drops the kubelet event: no pod needs its explanation."""
        self.kubelet_warning = self.kubelet_events_requested_at = None
