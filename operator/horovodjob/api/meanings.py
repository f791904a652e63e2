"""The meanings of phases, conditions, reasons and events, for the API reference."""

from collections.abc import Mapping

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason

PHASES: Mapping[Phase, str] = {
    Phase.QUEUED: "Not all pods have a node yet.",
    Phase.STARTING: "All pods have a node. Images are pulled, and workers are prepared until they answer over ssh.",
    Phase.RUNNING: "mpirun, or `launcherCommand`, runs.",
    Phase.RESTARTING: "An attempt has ended. The next one starts after a delay.",
    Phase.SUSPENDED: "The job has no pods, because `runPolicy.suspend` is true.",
    Phase.TERMINATING: "The deadline has passed or the user requested termination, and the pods are ending.",
    Phase.SUCCEEDED: "All ranks ended with exit code 0. Final.",
    Phase.FAILED: "No restarts are left, the deadline has passed, or the user requested termination. Final.",
}
CONDITIONS: Mapping[ConditionType, str] = {
    ConditionType.QUEUED: "The job waits for nodes.",
    ConditionType.PREPARED: "All workers answer over ssh.",
    ConditionType.RUNNING: "mpirun runs.",
    ConditionType.SUCCEEDED: "The job has succeeded.",
    ConditionType.FAILED: "The job has failed.",
    ConditionType.SUSPENDED: "The job is suspended and has no pods.",
    ConditionType.QUOTA_RELEASED: "False while the queue does not have the quota of a job that has ended back, "
    "because its Workload cannot be finished; otherwise the status does not have it.",
    ConditionType.READY: "The job is in its desired state: running, suspended or succeeded.",
    ConditionType.RECONCILING: "The operator is bringing the job into its desired state.",
    ConditionType.STALLED: "The job cannot continue without a user action; the message describes the action.",
    ConditionType.PROGRESSING: "The training completes steps. False says since when it does not, and which rank the "
    "others wait for, Unknown that no report comes any more; the status does not have it before the program has "
    "reported.",
}
REASONS: Mapping[Reason, str] = {
    Reason.ADMITTED: "All pods have a node: the job has been admitted, and `Queued` is False.",
    Reason.WAITING_FOR_NODES: "Pods have no node yet; the message quotes the scheduler.",
    Reason.WAITING_FOR_WORKERS: "All pods have a node, and the workers start.",
    Reason.PREPARATION_RUNNING: "All pods have a node, and `preparation` runs in some workers.",
    Reason.RANKS_RUNNING: "mpirun, or `launcherCommand`, runs.",
    Reason.ALL_RANKS_SUCCEEDED: "mpirun, or `launcherCommand`, ended with exit code 0.",
    Reason.RANK_FAILED: "mpirun, or `launcherCommand`, ended with another exit code.",
    Reason.LAUNCHER_FAILED: "The launcher ended, was killed or was deleted.",
    Reason.PREPARATION_FAILED: "`preparation` failed in a worker, or exceeded its timeout.",
    Reason.WORKER_LOST: "A worker ended, failed or was deleted.",
    Reason.WORKER_OUT_OF_MEMORY: "A worker was killed at its memory limit.",
    Reason.EVICTED: "The platform disrupted a pod: eviction, preemption or a drained node.",
    Reason.NODE_LOST: "The node of a pod no longer exists, or the launcher cannot reach a worker.",
    Reason.IMAGE_PULL_FAILED: "An image cannot be pulled. The kubelet tries again.",
    Reason.SSH_UNAVAILABLE: "A worker does not answer over ssh, or the image has no ssh server.",
    Reason.SCRIPT_NOT_FOUND: "`script.path` does not exist in the containers.",
    Reason.BACKOFF_LIMIT_EXCEEDED: "The last restart that `runPolicy.backoffLimit` allows has failed.",
    Reason.DEADLINE_EXCEEDED: "The job ran for longer than `runPolicy.activeDeadlineSeconds`.",
    Reason.SCHEDULING_TIMEOUT: "Some pods had no node, or could not start, within `scheduling.timeoutSeconds`; all are "
    "created again later.",
    Reason.TERMINATED: "`runPolicy.terminate` is true.",
    Reason.SUSPENDED_BY_USER: "`runPolicy.suspend` is true.",
    Reason.STORAGE_UNAVAILABLE: "A volume cannot be mounted; the message quotes the kubelet.",
    Reason.INVALID_SPEC: "Pods cannot be created or started as the job specifies them; the message names the field.",
    Reason.ADMISSION_DENIED: "A policy, an admission webhook, Pod Security or a LimitRange denies a pod; the message "
    "names it.",
    Reason.QUOTA_EXCEEDED: "A ResourceQuota has no room for all pods of the job, which starts when there is room.",
    Reason.OPERATOR_FORBIDDEN: "The operator lacks a right, which an administrator can give it.",
    Reason.CREATION_FAILED: "The API server, or an admission webhook that it calls, fails to create an object of the "
    "job; the operator tries again.",
    Reason.SECRET_DELETED: "Somebody has deleted the Secret with the keys of the job; all pods are replaced.",
    Reason.NAME_CONFLICT: "An object with the name of an object of the job exists and does not belong to the job.",
    Reason.RECONCILE_ERROR: "The operator cannot reconcile the job and keeps trying; the message has the error.",
    Reason.UNKNOWN_STATUS: "The operator cannot parse the status, which a newer release may have written.",
    Reason.QUEUED: "The job has entered its queue, and Kueue has not said why it waits. While it waits, the job has "
    "the reasons of Kueue, such as `WaitingForQuota` and `Preempted`.",
    Reason.QUEUE_UNAVAILABLE: "The cluster does not serve the Workloads of Kueue, or not to the operator.",
    Reason.QUOTA_LOST: "The Workload of the job was deleted or finished by somebody else, or the job got its queue "
    "while it ran: its pods end, and it waits.",
    Reason.STEPS_COMPLETED: "The training completes steps.",
    Reason.TRAINING_STALLED: "No step was completed for much longer than usual; the message names the rank that the "
    "others wait for, and what it does.",
    Reason.NO_REPORTS: "No report from rank 0 comes any more, so it is not known whether the training completes steps: "
    "its process, its pod or the network to the operator has failed.",
    Reason.PROGRESS_DEADLINE_EXCEEDED: "No step was completed for `runPolicy.progressDeadlineSeconds`, so the attempt "
    "ended; its log has the stacks of all ranks.",
    Reason.ADMISSION_CONFLICT: "The nodes to which the queue has admitted the job contradict the job; the message has "
    "both values.",
}
EVENTS: Mapping[EventReason, str] = {
    EventReason.QUEUED: "The job waits in its queue.",
    EventReason.CREATED: "The pods are being created; a queue, if the job has one, has admitted it. A job without a "
    "queue whose ranks run within half a minute can have none.",
    EventReason.ADMITTED: "All pods have a node.",
    EventReason.WORKERS_READY: "All workers answer over ssh.",
    EventReason.STARTED: "mpirun runs.",
    EventReason.RESTARTING: "An attempt has failed, and the next one follows.",
    EventReason.PREEMPTED: "The platform disrupted a pod, or a queue took the quota of the job; another attempt "
    "follows, or an elastic job continues.",
    EventReason.RESIZED: "The size of an elastic job changed, or one of its workers ended by itself.",
    EventReason.TRAINING_STALLED: "The training completes no steps; the message names the rank that the others wait "
    "for.",
    EventReason.SLOW_RANK: "A rank has needed a third more time for its part of a step than the median of the ranks, "
    "for a minute.",
    EventReason.NODE_FAILS: "One node has ended three attempts in a row, and no other node of the job did.",
    EventReason.SCHEDULING_TIMEOUT: "Some pods had no node, or did not start, in time. All are created again later.",
    EventReason.SUSPENDED: "The pods are being deleted.",
    EventReason.RESUMED: "The job starts its program again from the beginning.",
    EventReason.SUCCEEDED: "The job has succeeded.",
    EventReason.FAILED: "The job has failed.",
}
