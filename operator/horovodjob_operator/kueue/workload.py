"""The Workload of a job, which a queue of Kueue admits, as the few facts that decisions need. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horovodjob.api.constants import ANNOTATION_PRIORITY_CLASS, LABEL_JOB, LABEL_SPEC_HASH
from horovodjob_operator.domain.foreign_text import clean_reason, clean_text
from horovodjob_operator.domain.pods.pod_facts import owner_uid

API_VERSION = "kueue.x-k8s.io/v1beta2"
KIND = "Workload"


@dataclass(frozen=True, slots=True)
class WorkloadCondition:
    """A condition of a Workload."""

    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of one role, as the Workload requests them."""

    count: int
    min_count: int | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the queue has assigned to the pods of one role."""

    count: int | None = None
    """How many of the requested pods have quota; None for all."""
    flavors: tuple[str, ...] = ()
    """Names of ResourceFlavors, each once, in the order of the names of their resources."""
    has_topology: bool = False
    """Kueue chooses the nodes, and removes a scheduling gate from each pod."""


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """An admission check of the queue."""

    name: str
    state: str
    message: str
    updates: tuple[Mapping[str, Any], ...] = ()
    """Changes of the pods, each with the name of a pod set."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Workload that belongs to a job."""

    name: str
    uid: str
    version: int
    generation: int = 1
    queue_name: str = ""
    spec_hash: str = ""
    """Hash of the spec of the job; empty if the operator has not created the Workload."""
    is_active: bool = True
    priority_class: tuple[str, str] | None = None
    """Kind and name."""
    priority_source: str | None = None
    """Name of the class that the priority is from, if that is another one; empty for none."""
    max_execution_seconds: int | None = None
    pod_sets: Mapping[str, PodSet] = field(default_factory=dict)
    conditions: Mapping[str, WorkloadCondition] = field(default_factory=dict)
    cluster_queue: str = ""
    assignments: Mapping[str, Assignment] = field(default_factory=dict)
    checks: tuple[AdmissionCheck, ...] = ()
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    """The status as the API server stores it, for writes that replace it."""

    def has(self, condition: str) -> bool:
        """Whether a condition is True."""
        found = self.conditions.get(condition)
        return found is not None and found.is_true

    @property
    def text(self) -> str:
        """Kind and name, as kubectl finds it: Kubernetes has a kind with the same name."""
        return f"{KIND}.kueue.x-k8s.io {self.name}"

    @property
    def is_prebuilt(self) -> bool:
        """Whether MultiKueue has created it, and not the operator."""
        return not self.spec_hash

    @property
    def is_finished(self) -> bool:
        """Whether it has given its quota back, which cannot be undone."""
        return self.has("Finished")

    @property
    def has_reservation(self) -> bool:
        """Whether quota is reserved for it, which the operator clears after an eviction."""
        return self.has("QuotaReserved") or bool(self.cluster_queue)

    @property
    def has_lost_quota(self) -> bool:
        """Whether it is evicted, and its reservation is still to be cleared."""
        return self.has("Evicted") and self.has_reservation

    @property
    def is_admitted(self) -> bool:
        """Whether its pods may run."""
        return self.has("Admitted") and not self.has("Evicted") and not self.is_finished

    @property
    def flavors(self) -> tuple[str, ...]:
        """Names of the ResourceFlavors of all pods."""
        return tuple(sorted({flavor for assignment in self.assignments.values() for flavor in assignment.flavors}))

    def admitted_count(self, pod_set: str) -> int:
        """How many pods of a pod set have quota: those that are admitted, without those that gave theirs back."""
        requested = self.pod_sets.get(pod_set, PodSet(0)).count
        assigned = self.assignments.get(pod_set, Assignment()).count
        return min(requested if assigned is None else assigned, requested - self.reclaimable.get(pod_set, 0))


@dataclass(frozen=True, slots=True)
class OwnedWorkload:
    """A Workload, and the key (namespace, name) and UID of its job."""

    key: tuple[str, str]
    job_uid: str
    workload: Workload


def owned_workload(raw: Mapping[str, Any]) -> OwnedWorkload | None:
    """The facts of a Workload; None if it belongs to no job."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, uid = metadata.get("labels") or {}, owner_uid(metadata)
    if not uid or LABEL_JOB not in labels:
        return None
    admission, reference = status.get("admission") or {}, spec.get("priorityClassRef")
    workload = Workload(
        name=metadata["name"],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        generation=int(metadata.get("generation") or 1),
        queue_name=spec.get("queueName") or "",
        spec_hash=labels.get(LABEL_SPEC_HASH, ""),
        is_active=spec.get("active") is not False,
        priority_class=(str(reference["kind"]), str(reference["name"])) if reference else None,
        priority_source=(metadata.get("annotations") or {}).get(ANNOTATION_PRIORITY_CLASS),
        max_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
        pod_sets={one["name"]: PodSet(int(one["count"]), one.get("minCount")) for one in spec.get("podSets") or ()},
        conditions=_conditions(status.get("conditions") or ()),
        cluster_queue=admission.get("clusterQueue") or "",
        assignments={one["name"]: _assignment(one) for one in admission.get("podSetAssignments") or ()},
        checks=tuple(_check(check) for check in status.get("admissionChecks") or ()),
        reclaimable={one["name"]: int(one["count"]) for one in status.get("reclaimablePods") or ()},
        status=status,
    )
    return OwnedWorkload((metadata["namespace"], labels[LABEL_JOB]), uid, workload)


def _conditions(conditions: Iterable[Mapping[str, Any]]) -> dict[str, WorkloadCondition]:
    return {
        one["type"]: WorkloadCondition(
            one.get("status") == "True", clean_reason(one.get("reason")), clean_text(one.get("message"))
        )
        for one in conditions
    }


def _assignment(raw: Mapping[str, Any]) -> Assignment:
    flavors = dict.fromkeys(flavor for _, flavor in sorted((raw.get("flavors") or {}).items()))
    return Assignment(raw.get("count"), tuple(flavors), has_topology=bool(raw.get("topologyAssignment")))


def _check(raw: Mapping[str, Any]) -> AdmissionCheck:
    updates = tuple(raw.get("podSetUpdates") or ())
    return AdmissionCheck(raw["name"], raw.get("state") or "Pending", clean_text(raw.get("message")), updates)
