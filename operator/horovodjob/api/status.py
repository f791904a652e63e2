"""What the operator reports: `status` of a HorovodJob."""

from typing import Annotated

from pydantic import Field

from horovodjob.api.base import Model, Time, list_map
from horovodjob.api.constants import ConditionType, ExecutionState, Phase

MAX_ERRORS = 10
MAX_METRICS = 32


class Condition(Model):
    """A metav1.Condition."""

    type: ConditionType = Field(description="What it is about.")
    status: str = Field(description="True, False or Unknown.", max_length=7, pattern="^(True|False|Unknown)$")
    observed_generation: int = Field(0, description="Generation of the spec that it was derived from.")
    last_transition_time: Time = Field(description="When status last changed.")
    reason: str = Field(description="Why, in one CamelCase word.", max_length=1024)
    message: str = Field("", description="Why, in a sentence.", max_length=32768)


class ReplicaStatus(Model):
    """How many pods of a role are in which state."""

    active: int = Field(0, description="Pods that are pending or running.")
    ready: int = Field(0, description="Active pods that are ready: workers answer, the launcher runs mpirun.")
    succeeded: int = Field(0, description="Pods that ended with success.")
    failed: int = Field(0, description="Pods that failed.")


class ReplicaStatuses(Model):
    """Pods by role."""

    launcher: ReplicaStatus = Field(ReplicaStatus(), alias="Launcher", description="The launcher.")
    worker: ReplicaStatus = Field(ReplicaStatus(), alias="Worker", description="The workers.")


class JobError(Model):
    """What went wrong, where, and the last words of the container."""

    time: Time = Field(description="When it was seen.")
    attempt: int = Field(description="Attempt that it belongs to.")
    pod: str = Field("", description="Pod that failed.")
    node: str = Field("", description="Node of the pod.")
    container: str = Field("", description="Container that failed.")
    reason: str = Field(description="Why, in one CamelCase word.")
    exit_code: int | None = Field(None, description="Exit code of the container.")
    message: str = Field("", description="What happened, and the last lines of the container's log.")


Count = Annotated[int, Field(ge=0, le=10**15)]


class Training(Model):
    """How far the training is, as rank 0 told the operator."""

    epoch: Count | None = Field(None, description="Epochs that are complete.")
    epochs: Count | None = Field(None, description="Epochs in all.")
    step: Count | None = Field(None, description="Steps that are complete in the epoch that runs.")
    steps_per_epoch: Count | None = Field(None, description="Steps of an epoch.")
    progress: float = Field(ge=0, le=1, description="Done share of the whole training.")
    percent: str = Field("", max_length=8, description="The same to read, such as 13%.")
    samples_per_second: float | None = Field(None, ge=0, description="Samples a second, all ranks together.")
    eta: Time | None = Field(None, description="When the training is expected to end.")
    metrics: dict[str, float] = Field(
        {}, max_length=MAX_METRICS, description="Loss, accuracy and the like, as the training program calls them."
    )


class HorovodJobStatus(Model):
    """The truth about a job, as far as the operator has seen it."""

    observed_generation: int = Field(-1, description="Generation of the spec that this status speaks of.")
    phase: Phase | None = Field(None, description="Where the job stands, in one word.")
    execution_state: ExecutionState | None = Field(None, description="The same in Batch AI's words.")
    conditions: tuple[Condition, ...] = Field(
        (), description="Conditions; they never contradict the phase.", json_schema_extra=list_map("type")
    )
    start_time: Time | None = Field(None, description="When the job was first admitted, or resumed.")
    active_seconds: int = Field(0, ge=0, description="Seconds that the job was active before it was last suspended.")
    running_time: Time | None = Field(None, description="When mpirun of the current attempt began to run.")
    completion_time: Time | None = Field(None, description="When the job ended.")
    attempt: int = Field(0, description="Number of the current attempt, from 1.")
    restarts: int = Field(0, description="Restarts after failures; they count against backoffLimit.")
    preemptions: int = Field(0, description="Times that the platform took a pod; they do not.")
    exit_code: int | None = Field(None, description="Exit code of mpirun in the last attempt that ended.")
    replicas: int = Field(0, description="Worker pods that exist.")
    selector: str = Field("", description="Label selector of the worker pods.")
    replica_statuses: ReplicaStatuses = Field(ReplicaStatuses(), description="Pods by role and state.")
    workers_ready: str = Field("", description="Ready workers of all, such as 3/4.")
    output_path_segment: str = Field("", description="Path below logs.pathPrefix that is this job's own.")
    start_scripts: str = Field("", description="Version of the start scripts in the Secret <job>-mpi.")
    errors: tuple[JobError, ...] = Field((), description="The newest 10 errors, the last one last.")
    training: Training | None = Field(None, description="How far the training is; kept until the next attempt tells.")

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended for ever."""
        return self.phase is not None and self.phase.is_finished

    def condition(self, type_: ConditionType) -> Condition | None:
        """The condition of this type, if it was ever set."""
        return next((c for c in self.conditions if c.type is type_), None)
