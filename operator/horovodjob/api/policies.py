"""The policies of a job: network, scheduling, and how it starts, restarts and ends."""

from typing import Annotated

from pydantic import Field, StringConstraints

from horovodjob.api.base import Model, validations
from horovodjob.api.constants import CleanPodPolicy, Gang, OnWorkerLoss

ExitCode = Annotated[int, Field(ge=1, le=255)]
ManagedBy = Annotated[str, StringConstraints(min_length=1, max_length=63)]


class Network(Model):
    """Network access of the pods."""

    service: bool = Field(
        False,
        description="Whether to create a headless Service with the name of the job. It adds DNS names of pods, such as "
        "<job>-worker-0.<job>.",
    )
    isolate: bool = Field(
        True,
        description="Whether to create a NetworkPolicy with the name of the job. It allows connections to the pods "
        "only from pods of the same job, if the cluster enforces NetworkPolicies.",
    )


class Scheduling(Model):
    """How the pods are scheduled."""

    gang: Gang = Field(
        Gang.NONE,
        description="Gang scheduling: a PodGroup with the name of the job, whose pods are scheduled all at once or not "
        "at all. Native (the PodGroup of Kubernetes, scheduling.k8s.io), Volcano (with the scheduler of Volcano) or "
        "None.",
    )
    timeout_seconds: int = Field(
        600,
        ge=1,
        le=2147483647,
        description="Seconds within which all pods of an attempt must have a node, and for which a pod that cannot "
        "start keeps its node. Once all pods have a node, the ranks must run within as long, at least ten minutes, in "
        "addition to the time of preparation. Then all pods are deleted, and created again after a delay that "
        "increases each time, so that two partially scheduled jobs do not block each other. The time of a gang starts "
        "when its first pod has a node.",
    )
    avoid_failed_nodes: bool | None = Field(
        None,
        description="Whether further attempts avoid the nodes that ended earlier ones: lost, unreachable, refused by "
        "the kubelet, with a GPU error, or with the ranks that a stalled training waited for; true by default. It is a "
        "preference: without other nodes, the pods run there again.",
    )


class RunPolicy(Model):
    """How the job starts, restarts and ends."""

    model_config = validations(
        (
            "!has(oldSelf.terminate) || !oldSelf.terminate || has(self.terminate) && self.terminate",
            "terminate cannot be reset to false: create the job again",
        ),
    )
    suspend: bool = Field(
        False, description="Whether the job is suspended: it has no pods. false starts the program from its beginning."
    )
    clean_pod_policy: CleanPodPolicy = Field(
        CleanPodPolicy.RUNNING,
        description="Pods to delete when the job has finished: Running (the workers that run; the launcher, and "
        "workers that have ended, stay with their logs), All or None (terminate and the deadline stop pods instead of "
        "deleting them). Pods without a node are always deleted.",
    )
    backoff_limit: int = Field(
        3,
        ge=0,
        le=1000,
        description="Number of restarts after failures before the job fails; delays increase from 10 s to 6 min.",
    )
    on_worker_loss: OnWorkerLoss = Field(
        OnWorkerLoss.RESTART,
        description="Action when a worker is evicted, preempted or deleted, or when its node no longer exists: Restart "
        "(not counted against backoffLimit) or Fail.",
    )
    fail_on_exit_codes: tuple[ExitCode, ...] | None = Field(
        None,
        max_length=64,
        description="Exit codes of the program with which the job fails at once, because a restart is pointless. By "
        "default 2, a wrong setting, of a command that is the trainer (python -m horovodjob_trainer), and none of "
        "other programs.",
    )
    active_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=2147483647,
        description="Seconds of active time after which the job fails. All attempts count; time in suspension does "
        "not.",
    )
    progress_deadline_seconds: int | None = Field(
        None,
        ge=60,
        le=2147483647,
        description="Seconds without a completed step after which the attempt ends, and restarts from its checkpoint. "
        "The first step of an attempt has at least an hour. Without it, a training that makes no progress is only "
        "reported, by the condition Progressing.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=2147483647,
        description="Seconds after completion until the HorovodJob and the objects that it owns are deleted; can "
        "change at any time.",
    )
    terminate: bool = Field(
        False, description="true ends the job permanently: its pods end; the HorovodJob and its files stay."
    )
    managed_by: ManagedBy | None = Field(
        None, description="The name of spec.managedBy in earlier releases: use spec.managedBy, which MultiKueue reads."
    )
