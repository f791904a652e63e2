"""Every word that the resource speaks: phases, conditions, reasons, roles, labels."""

from enum import StrEnum

GROUP = "horovodjob.dev"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "HorovodJob"
PLURAL = "horovodjobs"
FINISHED_FIELD = "status.completionTime"
"""The field by which lists tell jobs that have ended from the others."""

LABEL_JOB = "horovodjob.dev/job"
LABEL_JOB_UID = "horovodjob.dev/job-uid"
LABEL_ROLE = "horovodjob.dev/role"
LABEL_REPLICA_INDEX = "horovodjob.dev/replica-index"
LABEL_ATTEMPT = "horovodjob.dev/attempt"
LABEL_SPEC_HASH = "horovodjob.dev/spec-hash"
LABEL_EXPERIMENT = "horovodjob.dev/experiment"
ANNOTATION_HOSTS = "horovodjob.dev/hosts"
KUEUE_PREFIX = "kueue.x-k8s.io/"
GPU_RESOURCE = "nvidia.com/gpu"
AKS_POOL_LABEL = "kubernetes.azure.com/agentpool"
AKS_PRIORITY_TAINT = "kubernetes.azure.com/scalesetpriority"
# AKS has the first and the second, which is to take its place; nodes that Karpenter makes have the third.
SPOT_LABELS = (AKS_PRIORITY_TAINT, "kubernetes.azure.com/priority", "karpenter.sh/capacity-type")
OPERATOR_NAME = "horovodjob.dev/operator"
# AZ_BATCHAI_JOB_MOUNT_ROOT in the containers.
MOUNT_ROOT = "/mnt/batchai/mounts"


class Role(StrEnum):
    """What a pod of a job is."""

    LAUNCHER = "launcher"
    WORKER = "worker"


class Phase(StrEnum):
    """Where a job stands, in one word."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    TERMINATING = "Terminating"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended for ever."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class ExecutionState(StrEnum):
    """Batch AI's words for the same."""

    QUEUED = "queued"
    RUNNING = "running"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ConditionType(StrEnum):
    """Conditions of a job; the last three are what kstatus and GitOps tools read."""

    QUEUED = "Queued"
    PREPARED = "Prepared"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Why a condition is as it is, or why an attempt ended."""

    ADMITTED = "Admitted"
    WAITING_FOR_NODES = "WaitingForNodes"
    WAITING_FOR_WORKERS = "WaitingForWorkers"
    PREPARATION_RUNNING = "PreparationRunning"
    RANKS_RUNNING = "RanksRunning"
    ALL_RANKS_SUCCEEDED = "AllRanksSucceeded"
    RANK_FAILED = "RankFailed"
    LAUNCHER_FAILED = "LauncherFailed"
    PREPARATION_FAILED = "PreparationFailed"
    WORKER_LOST = "WorkerLost"
    WORKER_OUT_OF_MEMORY = "WorkerOutOfMemory"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    SSH_UNAVAILABLE = "SshUnavailable"
    SCRIPT_NOT_FOUND = "ScriptNotFound"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    SCHEDULING_TIMEOUT = "SchedulingTimeout"
    TERMINATED = "Terminated"
    SUSPENDED_BY_USER = "SuspendedByUser"
    STORAGE_UNAVAILABLE = "StorageUnavailable"
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"


class EventReason(StrEnum):
    """Events of a job, each once per transition."""

    CREATED = "Created"
    ADMITTED = "Admitted"
    WORKERS_READY = "WorkersReady"
    STARTED = "Started"
    RESTARTING = "Restarting"
    PREEMPTED = "Preempted"
    RESIZED = "Resized"
    SCHEDULING_TIMEOUT = "SchedulingTimeout"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when the job has ended."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class OnWorkerLoss(StrEnum):
    """What follows when the platform, or somebody, takes a worker."""

    RESTART = "Restart"
    FAIL = "Fail"


class PodSecurity(StrEnum):
    """The Pod Security level that the job's pods keep to."""

    RESTRICTED = "Restricted"
    BASELINE = "Baseline"


class Gang(StrEnum):
    """Whose PodGroup makes the job's pods one group, which gets its nodes all at once or none."""

    NONE = "None"
    NATIVE = "Native"
    VOLCANO = "Volcano"


class MpiImplementation(StrEnum):
    """Whose mpirun starts the ranks."""

    OPEN_MPI = "OpenMPI"
    MPICH = "MPICH"
    INTEL_MPI = "IntelMPI"
