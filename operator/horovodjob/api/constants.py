"""The constants of the resource: phases, conditions, reasons, roles and labels."""

from enum import StrEnum

GROUP = "horovodjob.dev"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "HorovodJob"
PLURAL = "horovodjobs"
FINISHED_FIELD = "status.completionTime"
"""The field selector that distinguishes finished jobs."""

LABEL_JOB = "horovodjob.dev/job"
LABEL_JOB_UID = "horovodjob.dev/job-uid"
LABEL_ROLE = "horovodjob.dev/role"
LABEL_REPLICA_INDEX = "horovodjob.dev/replica-index"
LABEL_ATTEMPT = "horovodjob.dev/attempt"
LABEL_SPEC_HASH = "horovodjob.dev/spec-hash"
LABEL_EXPERIMENT = "horovodjob.dev/experiment"
LABEL_OWNER = "horovodjob.dev/owner"
"""Who the job belongs to, for people; it grants no rights."""
LABEL_SWEEP = "horovodjob.dev/sweep"
LABEL_TRIAL = "horovodjob.dev/sweep-trial"
ANNOTATION_SWEEP = "horovodjob.dev/sweep-definition"
ANNOTATION_PARAMETERS = "horovodjob.dev/sweep-parameters"
ANNOTATION_PRUNED = "horovodjob.dev/sweep-pruned"
ANNOTATION_HOSTS = "horovodjob.dev/hosts"
ANNOTATION_JOB_DEFAULTS = "horovodjob.dev/job-defaults"
KUEUE_PREFIX = "kueue.x-k8s.io/"
LABEL_QUEUE = f"{KUEUE_PREFIX}queue-name"
LABEL_QUEUE_PRIORITY = f"{KUEUE_PREFIX}priority-class"
LABEL_MAX_EXECUTION = f"{KUEUE_PREFIX}max-exec-time-seconds"
KUEUE_POD_GATE = f"{KUEUE_PREFIX}admission"
"""Of Kueue's integration for pods; the gate of a topology has another name."""
KUEUE_FRAMEWORK = f"{KIND}.{VERSION}.{GROUP}"
"""As Kueue's configuration names this kind."""
PREBUILT_WORKLOAD = f"{KUEUE_PREFIX}prebuilt-workload-name"
"""A label or an annotation, which MultiKueue sets on the cluster that runs the job."""
ANNOTATION_WORKLOAD_UID = "horovodjob.dev/workload-uid"
"""UID of the Workload whose quota a pod uses."""
ANNOTATION_PRIORITY_CLASS = "horovodjob.dev/priority-class"
"""The class that the priority of a Workload is from, if that is not its priorityClassRef."""
GPU_RESOURCE = "nvidia.com/gpu"
AKS_POOL_LABEL = "kubernetes.azure.com/agentpool"
# AKS sets the first, and the second in earlier versions; Karpenter sets the third.
POOL_LABELS = (AKS_POOL_LABEL, "agentpool", "karpenter.sh/nodepool")
AKS_PRIORITY_TAINT = "kubernetes.azure.com/scalesetpriority"
# AKS sets the first, and the second as its successor; Karpenter sets the third.
SPOT_LABELS = (AKS_PRIORITY_TAINT, "kubernetes.azure.com/priority", "karpenter.sh/capacity-type")
OPERATOR_NAME = "horovodjob.dev/operator"
MULTIKUEUE_NAME = "kueue.x-k8s.io/multikueue"
"""Value of spec.managedBy on the cluster from which MultiKueue dispatches the job to others."""
# Name of the Deployment and the Lease, value of the label managed-by, and user agent.
OPERATOR_APP_NAME = "horovodjob-operator"
# Value of AZ_BATCHAI_JOB_MOUNT_ROOT in the containers.
MOUNT_ROOT = "/mnt/batchai/mounts"


class Role(StrEnum):
    """The role of a pod in a job."""

    LAUNCHER = "launcher"
    WORKER = "worker"


class Phase(StrEnum):
    """The phase of a job."""

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
        """Whether the phase is final."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class ExecutionState(StrEnum):
    """The execution state of a job as Batch AI defines it."""

    QUEUED = "queued"
    RUNNING = "running"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ConditionType(StrEnum):
    """Conditions of a job; kstatus and GitOps tools read the last three."""

    QUEUED = "Queued"
    PREPARED = "Prepared"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    QUOTA_RELEASED = "QuotaReleased"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    PROGRESSING = "Progressing"


class Reason(StrEnum):
    """Reasons of conditions and errors."""

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
    ADMISSION_DENIED = "AdmissionDenied"
    QUOTA_EXCEEDED = "QuotaExceeded"
    OPERATOR_FORBIDDEN = "OperatorForbidden"
    CREATION_FAILED = "CreationFailed"
    SECRET_DELETED = "SecretDeleted"
    NAME_CONFLICT = "NameConflict"
    UNKNOWN_STATUS = "UnknownStatus"
    RECONCILE_ERROR = "ReconcileError"
    QUEUED = "Queued"
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    QUOTA_LOST = "QuotaLost"
    ADMISSION_CONFLICT = "AdmissionConflict"
    STEPS_COMPLETED = "StepsCompleted"
    TRAINING_STALLED = "TrainingStalled"
    NO_REPORTS = "NoReports"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"


class EventReason(StrEnum):
    """Reasons of events of a job, each once per transition."""

    QUEUED = "Queued"
    CREATED = "Created"
    ADMITTED = "Admitted"
    WORKERS_READY = "WorkersReady"
    STARTED = "Started"
    RESTARTING = "Restarting"
    PREEMPTED = "Preempted"
    RESIZED = "Resized"
    TRAINING_STALLED = "TrainingStalled"
    NODE_FAILS = "NodeFails"
    SLOW_RANK = "SlowRank"
    SCHEDULING_TIMEOUT = "SchedulingTimeout"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CleanPodPolicy(StrEnum):
    """The pods that are deleted when the job has finished."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class OnWorkerLoss(StrEnum):
    """The action after a disruption of a worker."""

    RESTART = "Restart"
    FAIL = "Fail"


class PodSecurity(StrEnum):
    """The Pod Security level of the pods of a job."""

    RESTRICTED = "Restricted"
    BASELINE = "Baseline"


class Gang(StrEnum):
    """The kind of PodGroup with which the pods of a job are scheduled all at once or not at all."""

    NONE = "None"
    NATIVE = "Native"
    VOLCANO = "Volcano"


class MpiImplementation(StrEnum):
    """The MPI implementation with the mpirun that starts the ranks."""

    OPEN_MPI = "OpenMPI"
    MPICH = "MPICH"
    INTEL_MPI = "IntelMPI"
