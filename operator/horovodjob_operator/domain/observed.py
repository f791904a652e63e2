"""What was seen of a job's pods: the few facts that decisions need, not the objects."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from horovodjob.api.constants import (
    ANNOTATION_HOSTS,
    KIND,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_REPLICA_INDEX,
    LABEL_ROLE,
    LABEL_SPEC_HASH,
    Gang,
    Reason,
    Role,
)
from horovodjob_operator.domain.names import SECRET_VOLUME
from horovodjob_operator.domain.progress_report import Report
from horovodjob_operator.domain.resources.pod_group import membership

IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
CONFIGURATION_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}
)

# Why a kubelet rejects a pod that is assigned to its node: what the scheduler knew of the node was out of date, or the
# node is shutting down. Rejections of what the pod asks for on any node, such as AppArmor, are not among them.
# (pkg/kubelet/kubelet.go, admissionRejectionReasons; "OutOf" is followed by the name of a resource)
REJECTION_REASONS = frozenset(
    {
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeShutdown",
        "NodeUnschedulable",
        "SMTAlignmentError",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "VolumeAttachmentLimitExceeded",
    }
)
OUT_OF_RESOURCE = re.compile(r"OutOf[a-z]")
# A kubelet that ends pods because its node shuts down; "Shutdown" is the word of older versions.
EVICTION_REASONS = frozenset({"NodeLost", "Preempting", "Shutdown", "Terminated"})

# What start scripts can tell.
TOLD_REASONS = frozenset(
    {
        Reason.LAUNCHER_FAILED,
        Reason.PREPARATION_FAILED,
        Reason.SCRIPT_NOT_FOUND,
        Reason.SSH_UNAVAILABLE,
        Reason.WORKER_LOST,
        Reason.WORKER_OUT_OF_MEMORY,
    }
)


@dataclass(frozen=True, slots=True)
class End:
    """How the container of a pod ended."""

    container: str
    exit_code: int
    reason: str
    message: str
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container of a pod cannot start."""

    container: str
    reason: str
    message: str

    @property
    def for_image(self) -> bool:
        """Whether its image is the trouble."""
        return self.reason in IMAGE_REASONS


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a job."""

    name: str
    uid: str
    role: Role
    index: int = 0
    attempt: int = 0
    owner_uid: str = ""
    version: int = 0
    phase: str = "Pending"
    node: str = ""
    placed_at: datetime | None = None
    address: str = ""
    hosts: str = ""
    container_pending: bool = False
    """Its own container has not started: init containers run, or its image is being pulled."""
    created_at: datetime | None = None
    ready: bool = False
    node_not_ready: bool = False
    """Its node does not report any more: the node controller has made the pod unready."""
    deleting: bool = False
    leaves_at: datetime | None = None
    """When a pod that is being deleted should have gone: its grace period is over."""
    end: End | None = None
    waiting: Waiting | None = None
    unschedulable: str = ""
    reason: str = ""
    message: str = ""
    disruption: str = ""
    ending: bool = False
    """Its containers have been told to end, while the pod is kept."""
    lingering: bool = False
    """Its own container has ended, and others of it, such as a sidecar, have not."""
    gang: Gang = Gang.NONE
    """Whose PodGroup it is a member of."""
    secret: str = ""
    """Name of the Secret with its keys and start scripts."""
    spec_hash: str = ""
    """Hash of the spec that it was made from; empty where a release that had none made it."""

    @property
    def alive(self) -> bool:
        """Whether its containers run or may yet run."""
        return self.phase not in ("Succeeded", "Failed")

    @property
    def evicted(self) -> bool:
        """Whether the platform says that it took the pod: eviction, preemption, a lost or ending node."""
        return bool(self.disruption) or self.reason in EVICTION_REASONS

    @property
    def rejected(self) -> bool:
        """Whether the kubelet of its node did not admit it, for a reason that lies with the node."""
        never_ran = self.phase == "Failed" and self.end is None
        return never_ran and (self.reason in REJECTION_REASONS or OUT_OF_RESOURCE.match(self.reason) is not None)

    @property
    def lost_with_node(self) -> bool:
        """Whether the platform says that the pod's node is gone; the pod garbage collector does when it is deleted."""
        return self.disruption == "DeletionByPodGC" or self.reason == "NodeLost"

    @property
    def taken(self) -> bool:
        """Whether the pod was taken, by the platform or by somebody who deleted it, and did not end by itself."""
        return self.deleting or self.evicted or self.rejected

    @property
    def out_of_storage(self) -> bool:
        """Whether the kubelet took it for what it wrote: more than its limit of ephemeral storage or of an emptyDir.

        The kubelet evicts for the node's sake, too, and then marks the pod with the condition DisruptionTarget.
        """
        return self.reason == "Evicted" and not self.disruption

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed for using more memory than its limit."""
        return self.end is not None and self.end.reason == "OOMKilled"


class EventReason(StrEnum):
    """Why a pod does not start, where its kubelet says so in events alone."""

    MOUNT_FAILED = "FailedMount"
    PULL_SECRET_MISSING = "FailedToRetrieveImagePullSecret"


@dataclass(frozen=True, slots=True)
class Warned:
    """The newest event of a kubelet about a pod that does not start."""

    reason: EventReason
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API server, or the job itself, does not allow; looked at again at `retry_at`."""

    reason: Reason
    message: str
    retry_at: datetime
    stalled: bool = True
    unreadable: bool = False
    """The spec is not one that this version knows, such as after a rollback: it says nothing about the job's pods."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The cluster as far as one job is concerned."""

    pods: tuple[Pod, ...] = ()
    strangers: tuple[Pod, ...] = ()
    """Pods of an earlier job with the same name, on their way out."""
    gone: tuple[Pod, ...] = ()
    """Pods that are gone since the last pass, as they were at last: only their conditions say who took them."""
    refusal: Refusal | None = None
    warning: Warned | None = None
    """What a kubelet last said of a pod that does not start."""
    report: Report | None = None
    """What rank 0 told last, of whatever attempt."""
    pod_group: Gang = Gang.NONE
    """The job's PodGroup, where it is known to be there, for pods need not show it."""

    @property
    def pod_groups(self) -> frozenset[Gang]:
        """The job's PodGroups: the one that is known, and those of its pods that have not been told to end."""
        members = (pod for pod in self.pods if pod.alive and not pod.deleting and not pod.ending)
        return frozenset({self.pod_group, *(pod.gang for pod in members)} - {Gang.NONE})

    @property
    def unmounted(self) -> Pod | None:
        """A pod that has a node and no address: it gets one as soon as its volumes are mounted."""
        waiting = (pod for pod in self.pods if pod.node and not pod.address and pod.alive and not pod.deleting)
        return min((pod for pod in waiting if not pod.waiting), key=lambda pod: pod.name, default=None)

    @property
    def without_image(self) -> Pod | None:
        """A pod with an image that cannot be pulled."""
        waiting = (pod for pod in self.pods if pod.waiting and pod.waiting.for_image and not pod.deleting)
        return min(waiting, key=lambda pod: pod.name, default=None)

    def warned(self, reason: EventReason) -> str:
        """What a kubelet last said for this reason, if anything."""
        return self.warning.message if self.warning and self.warning.reason is reason else ""

    @property
    def launcher(self) -> Pod | None:
        """The launcher pod, of whatever attempt."""
        return next((pod for pod in self.pods if pod.role is Role.LAUNCHER), None)

    def workers(self, indices: range) -> dict[int, Pod]:
        """Worker pods by index, those of the job's present size."""
        return {pod.index: pod for pod in self.pods if pod.role is Role.WORKER and pod.index in indices}


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """A pod with the job that it belongs to by label and by ownership."""

    key: tuple[str, str]
    pod: Pod


def owned_pod(raw: Mapping[str, Any]) -> OwnedPod | None:
    """The facts of a pod as the API server shows it; None where its labels are not those of a job's pod."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    try:
        role = Role(labels[LABEL_ROLE])
        index, attempt = int(labels[LABEL_REPLICA_INDEX]), int(labels[LABEL_ATTEMPT])
        key = (metadata["namespace"], labels[LABEL_JOB])
    except (KeyError, ValueError):
        return None
    status = raw.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled, disrupted = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    containers = status.get("containerStatuses") or ()
    end = _end(containers, role)
    own_end = end if end and end.container == role else None
    pod = Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        role=role,
        index=index,
        attempt=attempt,
        owner_uid=owner_uid(metadata),
        version=int(metadata.get("resourceVersion") or 0),
        phase=_phase(status.get("phase") or "Pending", own_end),
        node=(raw.get("spec") or {}).get("nodeName") or "",
        placed_at=_moment(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        address=status.get("podIP") or "",
        hosts=(metadata.get("annotations") or {}).get(ANNOTATION_HOSTS) or "",
        container_pending=_container_pending(status, role),
        created_at=_moment(metadata.get("creationTimestamp")),
        ready=conditions.get("Ready", {}).get("status") == "True",
        node_not_ready=_node_not_ready(conditions),
        deleting=bool(metadata.get("deletionTimestamp")),
        leaves_at=_moment(metadata.get("deletionTimestamp")),
        end=end,
        waiting=_waiting((*(status.get("initContainerStatuses") or ()), *containers)),
        unschedulable=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        lingering=own_end is not None and any("running" in (c.get("state") or {}) for c in containers),
        ending=(raw.get("spec") or {}).get("activeDeadlineSeconds") == 1,
        disruption=(disrupted.get("reason") or "Disrupted") if disrupted.get("status") == "True" else "",
        gang=membership(raw),
        secret=_secret((raw.get("spec") or {}).get("volumes") or ()),
        spec_hash=labels.get(LABEL_SPEC_HASH, ""),
    )
    return OwnedPod(key, pod)


def owner_uid(metadata: Mapping[str, Any]) -> str:
    """Uid of the HorovodJob that controls the object, or nothing."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == KIND:
            return str(reference["uid"])
    return ""


def _secret(volumes: Iterable[Mapping[str, Any]]) -> str:
    volume = next((volume for volume in volumes if volume["name"] == SECRET_VOLUME), {})
    sources = (volume.get("projected") or {}).get("sources") or ()
    return next((str(source["secret"]["name"]) for source in sources if "secret" in source), "")


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _phase(phase: str, own_end: End | None) -> str:
    """Phase of a pod whose own container counts: the kubelet takes a second longer, and sidecars may take for ever."""
    if own_end is None or phase in ("Succeeded", "Failed"):
        return phase
    return "Failed" if own_end.exit_code else "Succeeded"


def _node_not_ready(conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the node controller has made the pod unready; a kubelet that does so gives a reason.

    (pkg/controller/util/node/controller_utils.go, MarkPodsNotReady)
    """
    ready, containers_ready = conditions.get("Ready", {}), conditions.get("ContainersReady", {})
    unready = ready.get("status") == "False" and not ready.get("reason")
    return unready and containers_ready.get("status") == "True"


def _container_pending(status: Mapping[str, Any], role: Role) -> bool:
    """Whether the role's own container waits; a pod is Pending as well while only a sidecar does."""
    containers: Iterable[Mapping[str, Any]] = status.get("containerStatuses") or ()
    own = next((container for container in containers if container["name"] == role), {})
    return status.get("phase") == "Pending" and "waiting" in (own.get("state") or {})


def _end(containers: Any, role: Role) -> End | None:
    """The end of the role's own container, else of one that failed."""
    ended = [(c["name"], c["state"]["terminated"]) for c in containers if "terminated" in (c.get("state") or {})]
    ended.sort(key=lambda item: (item[0] != role.value, item[1].get("exitCode", 0) == 0))
    if not ended or (ended[0][0] != role.value and ended[0][1].get("exitCode", 0) == 0):
        return None
    name, end = ended[0]
    return End(
        container=name,
        exit_code=int(end.get("exitCode", 0)),
        reason=end.get("reason") or "",
        message=end.get("message") or "",
        finished_at=_moment(end.get("finishedAt")),
    )


def _waiting(containers: Any) -> Waiting | None:
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in IMAGE_REASONS | CONFIGURATION_REASONS:
            return Waiting(container["name"], waiting["reason"], waiting.get("message") or "")
    return None


def told_reason(end: End) -> tuple[Reason, str] | None:
    """Reason and sentence that a start script left as its termination message, None for a program's own output."""
    told = _told(end)
    try:
        reason, message = Reason(told["reason"]), str(told["message"])
    except (ValueError, KeyError):
        return None
    # A program can write there as well, and is not to say what only the operator knows.
    return (reason, message) if reason in TOLD_REASONS else None


def unreachable_hosts(end: End) -> frozenset[str]:
    """Addresses of the workers that the launcher could not reach when mpirun had failed."""
    hosts = _told(end).get("unreachable")
    return frozenset(hosts.split()) if isinstance(hosts, str) else frozenset()


def _told(end: End) -> Mapping[str, Any]:
    """What a start script left as its termination message, empty for a program's own output."""
    try:
        told = json.loads(end.message)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, Mapping) else {}
