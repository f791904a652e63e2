"""What the admission by a queue adds to the pods of a job: labels of nodes, tolerations, and marks for Kueue."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import ANNOTATION_WORKLOAD_UID, KUEUE_PREFIX, Role
from horovodjob_operator.errors import AdmissionConflict
from horovodjob_operator.kueue.workload import Assignment, Workload

TOPOLOGY_GATE = f"{KUEUE_PREFIX}topology"
TOPOLOGY_ANNOTATIONS = tuple(
    f"{KUEUE_PREFIX}podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)
# Names of objects can be longer than values of labels.
MAX_LABEL_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted Workload, and the ResourceFlavors that it names: their specs, by name."""

    workload: Workload
    flavors: Mapping[str, Mapping[str, Any]]

    def apply(self, pod: dict[str, Any], role: Role) -> dict[str, Any]:
        """The pod as it is admitted: flavors first, and then the changes of admission checks.

        Raises AdmissionConflict if two values are required for one key.
        """
        workload = self.workload
        assignment = workload.assignments.get(role, Assignment())
        metadata, spec = pod["metadata"], pod["spec"]
        labels = {f"{KUEUE_PREFIX}podset": role.value}
        queues = {"local-queue-name": workload.queue_name, "cluster-queue-name": workload.cluster_queue}
        labels |= {
            f"{KUEUE_PREFIX}{key}": name for key, name in queues.items() if 0 < len(name) <= MAX_LABEL_CHARACTERS
        }
        annotations = {ANNOTATION_WORKLOAD_UID: workload.uid}
        gates: list[dict[str, str]] = []
        if assignment.has_topology:
            annotations[f"{KUEUE_PREFIX}workload"] = workload.name
            if not any(name in metadata["annotations"] for name in TOPOLOGY_ANNOTATIONS):
                annotations[f"{KUEUE_PREFIX}podset-unconstrained-topology"] = "true"
            gates.append({"name": TOPOLOGY_GATE})
        node_labels: dict[str, str] = {}
        tolerations: list[Mapping[str, Any]] = []
        for name in assignment.flavors:  # As in Kueue, a later flavor replaces labels of an earlier one.
            flavor = self.flavors[name]
            node_labels |= flavor.get("nodeLabels") or {}
            tolerations += flavor.get("tolerations") or ()
        text = f"ResourceFlavor {', '.join(assignment.flavors)}"
        selector = _merge("nodeSelector", spec.get("nodeSelector"), node_labels, text)
        labels = _merge("labels", metadata["labels"], labels, "the queue")
        annotations = _merge("annotations", metadata["annotations"], annotations, "the queue")
        for check in workload.checks:
            source = f"admission check {check.name}"
            for update in (update for update in check.updates if update.get("name") == role.value):
                selector = _merge("nodeSelector", selector, update.get("nodeSelector"), source)
                labels = _merge("labels", labels, update.get("labels"), source)
                annotations = _merge("annotations", annotations, update.get("annotations"), source)
                tolerations += update.get("tolerations") or ()
        return {
            **pod,
            "metadata": {**metadata, "labels": labels, "annotations": annotations},
            "spec": {
                **spec,
                "nodeSelector": selector,
                "tolerations": _extend(spec.get("tolerations"), tolerations),
                **({"schedulingGates": _extend(spec.get("schedulingGates"), gates)} if gates else {}),
            },
        }


def _merge(
    field: str, values: Mapping[str, str] | None, added: Mapping[str, str] | None, source: str
) -> dict[str, str]:
    merged = dict(values or {})
    for key, value in (added or {}).items():
        if merged.setdefault(key, value) != value:
            raise AdmissionConflict(
                f"{source} requires {key} to be {value} in {field} of the pods, and it is {merged[key]} already: "
                "remove it from the job, or choose another queue"
            )
    return merged


def _extend(items: Iterable[Mapping[str, Any]] | None, added: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    extended = list(items or ())
    extended += [item for item in added if item not in extended]
    return extended
