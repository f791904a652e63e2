"""The observed state of a job: its pods, and what the API server and the kubelets report. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from horovodjob.api.constants import Gang, Reason, Role
from horovodjob_operator.domain.autoscaler import AutoscalerEvent
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.progress_report import ProgressReport
from horovodjob_operator.domain.silence import Silence
from horovodjob_operator.domain.stall_report import StallReport, UsageReport
from horovodjob_operator.kueue.queue import Queue


class KubeletEventReason(StrEnum):
    """Reasons of kubelet events that explain why a pod does not start, where its status does not."""

    MOUNT_FAILED = "FailedMount"
    PULL_SECRET_MISSING = "FailedToRetrieveImagePullSecret"


@dataclass(frozen=True, slots=True)
class KubeletWarning:
    """The newest kubelet event about a pod that does not start."""

    reason: KubeletEventReason
    message: str


# Refusals that pass, or that an administrator corrects: the author of the job has nothing to do.
PASSING_REASONS = frozenset(
    {Reason.QUOTA_EXCEEDED, Reason.OPERATOR_FORBIDDEN, Reason.CREATION_FAILED, Reason.SECRET_DELETED}
)


def keeps_trying(message: str) -> str:
    """The message of a refusal that passes."""
    return f"{message} (the operator keeps trying)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object of the job cannot be created; its creation is tried again at `retry_at`, if this is set."""

    reason: Reason
    message: str
    retry_at: datetime | None
    keeps_pods: bool = False
    """The refusal says nothing about the job and has just begun, so the pods that exist are kept."""
    waits_in_line: bool = False
    """The job waits in line for room in a quota: the creation is tried again when it is the turn of the job."""
    is_unreadable: bool = False
    """This version cannot parse the spec, such as after a rollback; this says nothing about the pods of the job."""

    @property
    def is_stalled(self) -> bool:
        """Whether the job waits for its author."""
        return self.reason not in PASSING_REASONS


@dataclass(frozen=True, slots=True)
class Observed:
    """All facts about the cluster that decisions about one job depend on."""

    pods: tuple[Pod, ...] = ()
    stale_owner_pods: tuple[Pod, ...] = ()
    """Terminating pods of an earlier job with the same name."""
    deleted_pods: tuple[Pod, ...] = ()
    """Pods deleted since the last reconciliation, as last observed: only their conditions explain the deletion."""
    refusal: Refusal | None = None
    is_creation_slow: bool = False
    """The API server takes seconds to create a pod of the job."""
    kubelet_warning: KubeletWarning | None = None
    autoscaler_event: AutoscalerEvent | None = None
    autoscaler_read_at: datetime | None = None
    """When this process has last read the events of autoscalers about a pod of the job that has no node."""
    progress_report: ProgressReport | None = None
    """The newest report of rank 0, of any attempt."""
    stall_report: StallReport | None = None
    """The newest report about a stall or its end, unless one of progress is newer."""
    silence: Silence | None = None
    """No report of rank 0 comes any more."""
    queue: Queue | None = None
    """The queue of the job, or one that it has left; None if it has none."""
    usage: UsageReport | None = None
    """The newest report about what the time of the current attempt was used for."""
    node_conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The problems that the nodes of the attempt reported when it ended or stalled, if the operator may read them."""
    has_scripts: bool = False
    """A pod of the namespace has mounted the start scripts of this release."""

    @property
    def retry_at(self) -> datetime | None:
        """When a creation that was refused is tried again."""
        return self.refusal.retry_at if self.refusal else None

    @property
    def pod_groups(self) -> frozenset[Gang]:
        """Kinds of PodGroup of the pods that are not stopping."""
        members = (pod for pod in self.pods if pod.is_active and not pod.is_terminating and not pod.is_stopping)
        return frozenset({pod.gang for pod in members} - {Gang.NONE})

    @property
    def pod_awaiting_node(self) -> Pod | None:
        """The last pod for which the scheduler has found no node: it is the last to get one from an autoscaler."""
        waiting = (pod for pod in self.pods if pod.unschedulable_message and not pod.node and pod.is_active)
        pods = (pod for pod in waiting if not pod.is_terminating)
        return max(pods, key=lambda pod: (pod.role is Role.WORKER, pod.index), default=None)

    @property
    def pod_awaiting_volumes(self) -> Pod | None:
        """A pod with a node and without an address: the kubelet assigns one as soon as the volumes are mounted."""
        waiting = (pod for pod in self.pods if pod.node and not pod.address and pod.is_active)
        pods = (pod for pod in waiting if not pod.is_terminating and not pod.waiting)
        return min(pods, key=lambda pod: pod.name, default=None)

    @property
    def pod_awaiting_image(self) -> Pod | None:
        """A pod with an image that cannot be pulled."""
        waiting = (pod for pod in self.pods if pod.waiting and pod.waiting.is_image_error and not pod.is_terminating)
        return min(waiting, key=lambda pod: pod.name, default=None)

    def warning_message(self, reason: KubeletEventReason) -> str:
        """Message of the newest kubelet event with this reason, or an empty string."""
        warning = self.kubelet_warning
        return warning.message if warning and warning.reason is reason else ""

    @property
    def launcher(self) -> Pod | None:
        """The launcher pod, of any attempt."""
        return next((pod for pod in self.pods if pod.role is Role.LAUNCHER), None)

    def workers(self, indices: range) -> dict[int, Pod]:
        """Worker pods by index, within the current size of the job."""
        return {pod.index: pod for pod in self.pods if pod.role is Role.WORKER and pod.index in indices}
