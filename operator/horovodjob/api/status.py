"""The `status` of a HorovodJob, which the operator reports."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from horovodjob.api.base import Model, Time, list_map
from horovodjob.api.constants import ConditionType, ExecutionState, Phase

MAX_ERRORS = 10
MAX_FAILED_NODES = 16
MAX_METRICS = 32
MAX_HISTORY = 24
MetricName = Annotated[str, StringConstraints(max_length=63)]
Count = Annotated[int, Field(ge=0, le=10**15)]


class Condition(Model):
    """A metav1.Condition."""

    type: ConditionType = Field(description="Type of the condition.")
    status: str = Field(description="True, False or Unknown.", max_length=7, pattern="^(True|False|Unknown)$")
    observed_generation: int = Field(0, description="Generation of the spec that the condition was derived from.")
    last_transition_time: Time = Field(description="Time of the last change of status.")
    reason: str = Field(description="Reason for the status, as one CamelCase word.", max_length=1024)
    message: str = Field("", description="Reason for the status, as a sentence.", max_length=32768)


class ReplicaStatus(Model):
    """Numbers of pods of a role by state."""

    active: int = Field(0, description="Pods that are pending or running.")
    ready: int = Field(0, description="Active pods that are ready: workers answer over ssh, the launcher runs mpirun.")
    succeeded: int = Field(0, description="Pods that succeeded.")
    failed: int = Field(0, description="Pods that failed.")


class ReplicaStatuses(Model):
    """Pods by role."""

    launcher: ReplicaStatus = Field(ReplicaStatus(), alias="Launcher", description="The launcher.")
    worker: ReplicaStatus = Field(ReplicaStatus(), alias="Worker", description="The workers.")


class JobError(Model):
    """An error: its time, its pod, its reason and the last lines of the log of the container."""

    time: Time = Field(description="Time at which the operator observed the error.")
    attempt: int = Field(description="Attempt in which the error occurred.")
    pod: str = Field("", description="Pod that failed.")
    node: str = Field("", description="Node of the pod.")
    container: str = Field("", description="Container that failed.")
    reason: str = Field(description="Reason for the error, as one CamelCase word.")
    exit_code: int | None = Field(None, description="Exit code of the container.")
    steps: Count | None = Field(
        None, description="Number of the last completed step; only of an attempt that ended at its progress deadline."
    )
    failed_nodes: tuple[str, ...] = Field(
        (), max_length=MAX_FAILED_NODES, description="Nodes that ended the attempt; the next attempts avoid them."
    )
    node_conditions: tuple[str, ...] = Field(
        (),
        max_length=MAX_FAILED_NODES,
        description="Problems that these nodes reported then, such as XIDErrors; the error does not count against "
        "backoffLimit.",
    )
    message: str = Field("", description="The error, and the last lines of the log of the container.")


class TrainedEpoch(Model):
    """An epoch that is complete, as rank 0 reported it: numbers with five significant digits."""

    epoch: Count = Field(description="Number of the epoch, from 1.")
    time: Time = Field(description="Time of its end.")
    metrics: dict[str, float] = Field(
        {}, max_length=MAX_METRICS, description="Metrics with the names that the training program uses."
    )
    non_finite: tuple[MetricName, ...] | None = Field(
        None, max_length=MAX_METRICS, description="Metrics that were NaN or infinite; absent without any."
    )
    learning_rate: float | None = Field(None, description="Learning rate of its last step.")
    samples_per_second: float | None = Field(None, ge=0, description="Samples per second of all ranks together.")


class Mode(StrEnum):
    """Whether the best value of a metric is its lowest or its highest, in the words of Keras."""

    MIN = "min"
    MAX = "max"


class EpochValue(Model):
    """The value that a metric had after an epoch."""

    epoch: Count = Field(description="Number of the epoch, from 1.")
    value: float = Field(description="Value of the metric.")


class Extremes(Model):
    """The lowest and the highest value of a metric after any epoch; of equal values, the first one."""

    mode: Mode | None = Field(
        None, description="Which of both the program declares to be the best: min or max; absent if it declares none."
    )
    min: EpochValue = Field(description="Lowest value and its epoch.")
    max: EpochValue = Field(description="Highest value and its epoch.")

    @property
    def best(self) -> EpochValue | None:
        """The end that the program declares to be the best; None if it declares none."""
        return None if self.mode is None else self.max if self.mode is Mode.MAX else self.min


class Best(Model):
    """The best epoch by the metric that the program selects epochs by."""

    metric: str = Field(max_length=63, description="Metric that the program selects its best epoch by.")
    mode: Mode | None = Field(
        None, description="Whether the lowest (min) or highest value (max) is best; absent if unknown."
    )
    value: float | None = Field(None, description="Best value; absent if mode is absent: see training.extremes.")
    epoch: Count | None = Field(None, description="Epoch that had the best value, from 1.")


class SlowestRank(Model):
    """A rank that needs a third more time for its part of a step than the median of the ranks, for a minute."""

    rank: Count = Field(description="Number of the rank.")
    pod: str = Field("", max_length=253, description="Pod of the rank.")
    node: str = Field("", max_length=253, description="Node of the pod.")
    ratio: float = Field(ge=1, description="Its own time for a step, without the exchange, in relation to the median.")
    section: str = Field(
        "", max_length=16, description="Where it needs the time: input or compute; empty if that is unknown."
    )


class GoodputSeconds(Model):
    """What time was used for, in seconds."""

    steps: Count = Field(0, description="Steps that were kept, without input and exchange.")
    starting: Count = Field(0, description="Starts of pods, of mpirun and of the program, also after restarts.")
    setup: Count = Field(0, description="Set-up and compilation, until the first step of an attempt is complete.")
    input: Count = Field(0, description="Waiting for batches.")
    exchange: Count = Field(0, description="Waiting for other ranks in exchanges.")
    validation: Count = Field(0, description="Validations.")
    checkpoints: Count = Field(0, description="Checkpoints for which the training waited.")
    stalled: Count = Field(0, description="Stalls: no step was completed.")
    lost_steps: Count = Field(0, description="Steps that were done again after a restart.")
    restart_delay: Count = Field(0, description="Delays before restarts.")


class AttemptGoodput(Model):
    """The part of the newest attempt that has reported."""

    number: int = Field(ge=1, description="Number of the attempt.")
    percent: float = Field(ge=0, le=100, description="Share of the steps in the time of its program.")
    seconds: GoodputSeconds = Field(GoodputSeconds(), description="What the time of its program was used for.")
    steps: Count = Field(0, description="Number of the last completed step.")
    first_step: Count | None = Field(
        None, description="Number of the step that it continued from; absent if the program does not know it."
    )


class Goodput(Model):
    """The share of the time of the job that became steps which were kept. Time in queues and suspension is outside."""

    percent: float = Field(ge=0, le=100, description="Share of the steps that were kept in the time of the job.")
    seconds: GoodputSeconds = Field(GoodputSeconds(), description="What the time of all attempts was used for.")
    queued_seconds: Count = Field(0, description="Time in which pods waited for nodes, which is outside.")
    first_step: Count | None = Field(
        None, description="Number of the step before the first one; absent if the program does not know it."
    )
    steps: Count = Field(0, description="Number of the last step that was kept.")
    attempt: AttemptGoodput = Field(description="The part of the newest attempt.")


class Training(Model):
    """Progress of the training, as rank 0 reports it."""

    epoch: Count | None = Field(None, description="Completed epochs.")
    epochs: Count | None = Field(None, description="Total number of epochs.")
    step: Count | None = Field(None, description="Completed steps of the current epoch.")
    steps_per_epoch: Count | None = Field(None, description="Number of steps of an epoch.")
    progress: float = Field(ge=0, le=1, description="Completed fraction of the training, from 0 to 1.")
    percent: str = Field("", max_length=8, description="Completed fraction as a percentage, such as 13%.")
    samples_per_second: float | None = Field(None, ge=0, description="Samples per second of all ranks together.")
    eta: Time | None = Field(None, description="Estimated time of completion.")
    metrics: dict[str, float] = Field(
        {},
        max_length=MAX_METRICS,
        description="Metrics such as loss and accuracy, with the names that the training program uses.",
    )
    non_finite: tuple[MetricName, ...] | None = Field(
        None,
        max_length=MAX_METRICS,
        description="Metrics that are NaN or infinite now, which a number of JSON cannot be; absent without any.",
    )
    history: tuple[TrainedEpoch, ...] = Field(
        (),
        max_length=MAX_HISTORY,
        description="Complete epochs of all attempts, at most 24: of more, every second, fourth and so on.",
    )
    best: Best | None = Field(None, description="The best of all epochs, also of those that the history no longer has.")
    extremes: dict[str, Extremes] = Field(
        {},
        max_length=MAX_METRICS,
        description="Lowest and highest value of each metric after any epoch, also of those that the history no longer "
        "has.",
    )
    slowest_rank: SlowestRank | None = Field(
        None, description="The slowest rank, if it has needed a third more time than the median for a minute."
    )
    goodput: Goodput | None = Field(
        None, description="What the time of the job was used for; absent until the program has reported."
    )


class QueueStatus(Model):
    """The place of the job in a queue of Kueue, as its Workload reports it."""

    name: str = Field(description="LocalQueue that the job waits in, or was admitted through.", max_length=253)
    cluster_queue: str = Field("", description="ClusterQueue that has reserved quota for the job.")
    position: int | None = Field(
        None, ge=1, description="Position in the LocalQueue, from 1; absent once quota is reserved, and if unknown."
    )
    flavors: tuple[str, ...] = Field((), description="ResourceFlavors whose quota the job has.")


class HorovodJobStatus(Model):
    """The observed state of a job."""

    observed_generation: int = Field(-1, description="Generation of the spec that this status was derived from.")
    phase: Phase | None = Field(None, description="Current phase of the job.")
    execution_state: ExecutionState | None = Field(
        None, description="Execution state of the job as Batch AI defines it."
    )
    conditions: tuple[Condition, ...] = Field(
        (), description="Conditions of the job, consistent with the phase.", json_schema_extra=list_map("type")
    )
    start_time: Time | None = Field(None, description="Time at which the job was first admitted, or last resumed.")
    active_seconds: int = Field(0, ge=0, description="Seconds of active time before the last suspension.")
    running_time: Time | None = Field(None, description="Time at which mpirun of the current attempt started.")
    completion_time: Time | None = Field(None, description="Time at which the job finished.")
    attempt: int = Field(1, description="Number of the current attempt, from 1.")
    restarts: int = Field(0, description="Number of restarts after failures, which count against backoffLimit.")
    preemptions: int = Field(
        0, description="Number of disruptions of pods by the platform, which do not count against backoffLimit."
    )
    exit_code: int | None = Field(None, description="Exit code of mpirun in the last completed attempt.")
    replicas: int = Field(0, description="Number of worker pods.")
    selector: str = Field("", description="Label selector of the worker pods.")
    replica_statuses: ReplicaStatuses = Field(ReplicaStatuses(), description="Pods by role and state.")
    workers_ready: str = Field("", description="Ready workers and all workers, such as 3/4.")
    output_path_segment: str = Field("", description="Path below logs.pathPrefix, unique to this job.")
    errors: tuple[JobError, ...] = Field((), description="The newest 10 errors, in the order of their times.")
    queue: QueueStatus | None = Field(
        None, description="The queue of Kueue; absent for a job without the label kueue.x-k8s.io/queue-name."
    )
    training: Training | None = Field(
        None, description="Progress of the training; kept until the next attempt reports its own."
    )

    @property
    def is_finished(self) -> bool:
        """Whether the job is Succeeded or Failed, which never changes."""
        return self.phase is not None and self.phase.is_finished

    @property
    def is_over(self) -> bool:
        """Whether the job is finished, and so is its Workload, if it has one."""
        return self.is_finished and self.condition(ConditionType.QUOTA_RELEASED) is None

    def condition(self, type_: ConditionType) -> Condition | None:
        """The condition of this type, if the status has it."""
        return next((c for c in self.conditions if c.type is type_), None)
