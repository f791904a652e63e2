"""The policies of a job: network, scheduling, and how it starts, restarts and ends."""

from typing import Annotated

from pydantic import Field, StringConstraints

from horovodjob.api.base import Model, validations
from horovodjob.api.constants import OPERATOR_NAME, CleanPodPolicy, Gang, OnWorkerLoss


class Network(Model):
    """How the job's pods find each other."""

    service: bool = Field(
        False,
        description="A headless Service with the job's name, for programs that look each other up: "
        "<job>-worker-0.<job> is a worker's address.",
    )
    isolate: bool = Field(
        True,
        description="A NetworkPolicy with the job's name: only the job's own pods can connect to its pods, where the "
        "cluster enforces such policies.",
    )


class Scheduling(Model):
    """How the job's pods come to their nodes."""

    gang: Gang = Field(
        Gang.NONE,
        description="A PodGroup with the job's name, whose pods are placed all at once or not at all: Native (that of "
        "Kubernetes, scheduling.k8s.io/v1alpha2), Volcano (placed by Volcano's scheduler) or None.",
    )
    timeout_seconds: int = Field(
        600,
        ge=1,
        le=2147483647,
        description="Seconds in which all pods of an attempt must have a node; if not, all are deleted and made again "
        "after a growing delay, so that two half-placed jobs never wait for each other for ever. A gang of which no "
        "pod is placed holds nothing, and may wait for longer.",
    )


class RunPolicy(Model):
    """How the job starts, restarts and ends."""

    model_config = validations(
        (
            "!has(oldSelf.terminate) || !oldSelf.terminate || has(self.terminate) && self.terminate",
            "terminate cannot be taken back: a job that was told to end stays ended; create it anew",
        ),
        (
            "has(self.managedBy) == has(oldSelf.managedBy) && "
            "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy can never change: delete the job and create it anew",
        ),
    )
    suspend: bool = Field(False, description="No pods while true; false starts the program again from its beginning.")
    clean_pod_policy: CleanPodPolicy = Field(
        CleanPodPolicy.RUNNING,
        description="Which pods are deleted at the end: Running (workers; the launcher keeps its log), All or None.",
    )
    backoff_limit: int = Field(
        3,
        ge=0,
        le=1000,
        description="Restarts after a failure before the job fails; delays grow from 10 s to 6 min.",
    )
    on_worker_loss: OnWorkerLoss = Field(
        OnWorkerLoss.RESTART,
        description="What follows when a worker is evicted, preempted or deleted, or its node is gone: Restart (not "
        "counted against backoffLimit) or Fail.",
    )
    active_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=2147483647,
        description="Seconds of activity after which the job fails: all attempts counted, time in suspension not.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=2147483647,
        description="Seconds after its end at which the HorovodJob is deleted, and with it all that it owns; can "
        "change at any time.",
    )
    terminate: bool = Field(
        False, description="true ends the job for ever: its pods go, its record and its files stay."
    )
    managed_by: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = Field(
        None,
        description=f"Who looks after the job; the operator leaves jobs alone where this is not {OPERATOR_NAME}.",
    )
