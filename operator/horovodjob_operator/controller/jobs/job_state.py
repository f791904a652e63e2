"""What the process knows of one unfinished job in addition to the stored object and its pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from horovodjob.api.constants import Reason, Role
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.autoscaler import AutoscalerEvent
from horovodjob_operator.domain.job_defaults import NamespaceDefaults
from horovodjob_operator.domain.pods.observed import KubeletWarning, Observed, Refusal
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.progress_report import ProgressReport
from horovodjob_operator.domain.resource_quota import PodUsage
from horovodjob_operator.domain.silence import Silence
from horovodjob_operator.domain.stall_report import StallReport, UsageReport
from horovodjob_operator.kueue.queue import Queue, QueueProblem

# The garbage collector removes the first after it has orphaned the objects of a job, the second after their deletion.
COLLECTOR_FINALIZERS = {"orphan", "foregroundDeletion"}
LEFT_ALONE = "this version of the operator does not change the job"


@dataclass(slots=True, eq=False, weakref_slot=True)
class JobState:
    """A job and its state. A new process starts without this state, so no decision may depend on it to be correct."""

    job: HorovodJob
    version: int
    """Newest known resource version; events with an older one are outdated."""
    refusal: Refusal | None = None
    refusal_count: int = 0
    """Refusals since all objects of an attempt were created."""
    refused_since: datetime | None = None
    """When the first of these refusals was."""
    has_turn: bool = False
    """The job waited for a quota that has room for it now."""
    granted_workers: int | None = None
    """For how many workers the quota has room; None if for all."""
    is_creation_slow: bool = False
    """The last creation of pods took seconds."""
    pod_usage: Mapping[Role, PodUsage] | None = None
    """What the pods of this spec count in quotas; None if the API server was not asked."""
    error: str = ""
    """The error in the status because of which reconciliations fail."""
    defaults_error: str = ""
    """Why the defaults of the namespace are unknown."""
    unreadable_status: Mapping[str, Any] | None = None
    """The stored status, if this release cannot parse it."""
    deleted_pods: dict[str, Pod] = field(default_factory=dict)
    """Pods deleted since the last reconciliation, by name."""
    progress_report: ProgressReport | None = None
    stall_report: StallReport | None = None
    usage: tuple[int, UsageReport] | None = None
    """What the time of an attempt was used for, with the number of the attempt."""
    node_conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node_conditions_of: tuple[int, bool] | None = None
    """For which attempt they were read, and whether it had ended."""
    status_written_at: datetime | None = None
    status_changed_at: datetime | None = None
    """Since when the status differs from the stored one."""
    objects_checked_at: datetime | None = None
    """When the optional objects were created, or last found to exist."""
    kubelet_warning: KubeletWarning | None = None
    kubelet_events_requested_at: datetime | None = None
    autoscaler_event: AutoscalerEvent | None = None
    autoscaler_read_at: datetime | None = None
    queue_problem: QueueProblem | None = None
    queue_refusals: int = 0
    """Refusals of the Workload since it was created or changed."""
    queue_position: int | None = None
    is_deleted: bool = False
    was_collected: bool = False
    """A version of the job before this one was `is_collected`."""

    @property
    def uid(self) -> str:
        """UID of the job."""
        return self.job.metadata.uid

    @property
    def is_collected(self) -> bool:
        """Whether the garbage collector decides on the objects of the deleted job: it deletes or orphans them."""
        return self.was_collected or not COLLECTOR_FINALIZERS.isdisjoint(self.job.metadata.finalizers)

    def update(self, newer: "JobState") -> None:
        """Stores a newer version of the job. A changed spec replaces the refusal of the old one."""
        is_unreadable = (self.unreadable_status is not None, newer.unreadable_status is not None)
        if newer.job.metadata.generation != self.job.metadata.generation or any(is_unreadable):
            self.refusal, self.refusal_count, self.refused_since = newer.refusal, 0, None
            self.queue_problem, self.queue_refusals, self.pod_usage = None, 0, None
            self.end_turn()
        if newer.job.metadata.labels != self.job.metadata.labels:
            self.queue_problem, self.queue_refusals = None, 0
        self.was_collected = self.is_collected
        self.job, self.version, self.unreadable_status = newer.job, newer.version, newer.unreadable_status
        self.defaults_error = newer.defaults_error

    def end_turn(self) -> None:
        """Ends the turn of the job: its pods are created or refused, or its spec has changed."""
        self.has_turn, self.granted_workers = False, None

    def has_changed(self, job: HorovodJob) -> bool:
        """Whether the spec of the job is newer than this one, or the job is deleted."""
        newest = self.job.metadata
        return self.is_deleted or newest.generation != job.metadata.generation or bool(newest.deletion_timestamp)

    def add_deleted_pod(self, pod: Pod) -> None:
        """Keeps the last state of a deleted pod for the next reconciliation."""
        # The event of the deletion can be the first with the pod's conditions. How its containers ended is ignored.
        self.deleted_pods[pod.name] = replace(pod, is_terminating=True, termination=None)

    def forget_deleted_pods(self, pods: Iterable[Pod]) -> None:
        """Drops deleted pods: the status contains the consequences."""
        for pod in pods:
            if self.deleted_pods.get(pod.name) is pod:
                del self.deleted_pods[pod.name]

    def observed(
        self,
        pods: Iterable[Pod],
        *,
        has_scripts: bool = False,
        queue: Queue | None = None,
        silence: Silence | None = None,
    ) -> Observed:
        """The facts for decisions, given the pods with the label of the job."""
        pods, uid = tuple(pods), self.uid
        return Observed(
            pods=tuple(pod for pod in pods if pod.owner_uid == uid),
            stale_owner_pods=tuple(pod for pod in pods if pod.owner_uid and pod.owner_uid != uid),
            deleted_pods=tuple(pod for pod in self.deleted_pods.values() if pod.owner_uid == uid),
            refusal=self.refusal,
            is_creation_slow=self.is_creation_slow,
            kubelet_warning=self.kubelet_warning,
            autoscaler_event=self.autoscaler_event,
            autoscaler_read_at=self.autoscaler_read_at,
            progress_report=self.progress_report,
            stall_report=self.stall_report,
            silence=silence,
            usage=self.usage[1] if self.usage and self.usage[0] == self.job.status.attempt else None,
            node_conditions=self.node_conditions,
            queue=queue,
            has_scripts=has_scripts,
        )


def new_job_state(raw: Mapping[str, Any], metadata: Metadata, defaults: NamespaceDefaults) -> JobState:
    """The state of a job as the API server stores it, with the defaults of its namespace.

    A spec or a status that this release cannot parse, such as after a rollback, becomes a refusal.
    """
    version = int(metadata.resource_version)
    try:
        status = HorovodJobStatus.model_validate(raw.get("status") or {})
    except ValidationError as error:
        refusal = _unreadable(Reason.UNKNOWN_STATUS, "status", error)
        job = HorovodJob(metadata=metadata, spec=HorovodJobSpec(image=""))
        return JobState(job, version, refusal, unreadable_status=raw["status"])
    try:
        stored = HorovodJobSpec.model_validate(raw.get("spec"))
    except ValidationError as error:
        refusal = _unreadable(Reason.INVALID_SPEC, "spec", error)
        return JobState(HorovodJob(metadata=metadata, spec=HorovodJobSpec(image=""), status=status), version, refusal)
    spec = defaults.values.apply_to(stored)
    queue = defaults.values.queue or ""
    job = HorovodJob(metadata=metadata, spec=spec, status=status, stored_spec=stored, default_queue=queue)
    return JobState(job, version, defaults_error=defaults.error)


def apply_defaults(state: JobState, defaults: NamespaceDefaults) -> None:
    """Replaces the defaults of a job. They can be the remedy of its refusal."""
    if stored := state.job.stored_spec:
        values = {"spec": defaults.values.apply_to(stored), "default_queue": defaults.values.queue or ""}
        state.job = state.job.model_copy(update=values)
        state.refusal, state.refusal_count, state.refused_since = None, 0, None
        state.defaults_error, state.pod_usage = defaults.error, None


def _unreadable(reason: Reason, part: str, error: ValidationError) -> Refusal:
    first = error.errors()[0]
    field = ".".join(str(step) for step in (part, *first["loc"]))
    return Refusal(reason, f"{field}: {first['msg']}; {LEFT_ALONE}", retry_at=None, is_unreadable=True)
