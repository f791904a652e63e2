"""One pod of a job, as the few facts that decisions need. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import Gang, Role

IMAGE_ERRORS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
CONFIGURATION_ERRORS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}
)

# Reasons for which a kubelet rejects a pod on its node: the scheduler's data about the node was out of date, or the
# node is shutting down. Rejections that would occur on every node, such as for AppArmor, are not among them.
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
# "Terminated" is the reason of a graceful node shutdown; older versions use "Shutdown".
EVICTION_REASONS = frozenset({"NodeLost", "Preempting", "Shutdown", "Terminated"})


@dataclass(frozen=True, slots=True)
class ContainerTermination:
    """How a container of a pod ended."""

    container: str
    exit_code: int
    reason: str
    message: str
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ContainerWaiting:
    """Why a container of a pod cannot start."""

    container: str
    reason: str
    message: str

    @property
    def is_image_error(self) -> bool:
        """Whether the kubelet cannot get the image."""
        return self.reason in IMAGE_ERRORS


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a job. Its main container has the name of its role."""

    name: str
    uid: str
    role: Role
    index: int = 0
    attempt: int = 0
    owner_uid: str = ""
    version: int = 0
    phase: str = "Pending"
    node: str = ""
    scheduled_at: datetime | None = None
    address: str = ""
    hosts: str = ""
    has_pending_container: bool = False
    """The main container has not started: init containers run, or the image is being pulled."""
    created_at: datetime | None = None
    is_ready: bool = False
    """The main container is ready, and its node reports."""
    has_unready_node: bool = False
    """The node does not report: the node controller has set the pod to not ready."""
    is_terminating: bool = False
    deletion_timestamp: datetime | None = None
    """When the grace period of the deletion is over."""
    termination: ContainerTermination | None = None
    waiting: ContainerWaiting | None = None
    unschedulable_message: str = ""
    has_kueue_gate: bool = False
    """The webhook of Kueue's integration for pods has queued the pod by itself."""
    reason: str = ""
    message: str = ""
    disruption: str = ""
    """Reason of the condition DisruptionTarget."""
    is_stopping: bool = False
    """Its containers have been requested to stop, while the pod is kept."""
    has_running_sidecars: bool = False
    """The main container has ended, and other containers have not."""
    provisioning_request: str = ""
    """Name of the ProvisioningRequest whose nodes it uses; they are requested before the pod is created."""
    gang: Gang = Gang.NONE
    """Kind of the PodGroup that it is a member of."""
    secret_names: tuple[str, ...] = ()
    """Names of the Secrets with its keys and start scripts."""
    workload_uid: str = ""
    """UID of the Workload whose quota it uses; empty without a queue."""
    spec_hash: str = ""
    """Hash of the spec that the pod was created from; empty for pods of a release without such hashes."""

    def has_other_spec(self, spec_hash: str) -> bool:
        """Whether the pod is known to have been created from another spec."""
        return "" not in (self.spec_hash, spec_hash) and self.spec_hash != spec_hash

    @property
    def is_active(self) -> bool:
        """Whether its containers run or can still run."""
        return self.phase not in ("Succeeded", "Failed")

    @property
    def waits_for_scheduler(self) -> bool:
        """Whether the scheduler has not tried to find a node for it yet."""
        return self.is_active and not (self.node or self.unschedulable_message or self.is_terminating)

    @property
    def is_evicted(self) -> bool:
        """Whether the platform reports a disruption: eviction, preemption, a lost node or a node that shuts down."""
        return bool(self.disruption) or self.reason in EVICTION_REASONS

    @property
    def is_rejected(self) -> bool:
        """Whether the kubelet rejected the pod for a reason that depends on the node."""
        never_ran = self.phase == "Failed" and self.termination is None
        return never_ran and (self.reason in REJECTION_REASONS or OUT_OF_RESOURCE.match(self.reason) is not None)

    @property
    def has_lost_node(self) -> bool:
        """Whether the node no longer exists; the pod garbage collector reports this when it deletes the pod."""
        return self.disruption == "DeletionByPodGC" or self.reason == "NodeLost"

    @property
    def is_disrupted(self) -> bool:
        """Whether the platform or a user ended the pod, so it did not end by itself."""
        return self.is_terminating or self.is_evicted or self.is_rejected

    @property
    def is_out_of_storage(self) -> bool:
        """Whether the kubelet evicted it for exceeding its own limit of ephemeral storage or of an emptyDir.

        Evictions for pressure on the node have the condition DisruptionTarget as well.
        """
        return self.reason == "Evicted" and not self.disruption

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the main container was killed at its memory limit."""
        end = self.termination
        return end is not None and end.container == self.role and end.reason == "OOMKilled"
