"""The metadata of an MPIJob as that of a HorovodJob."""

from typing import Any

from horovodjob.api.constants import LABEL_EXPERIMENT
from horovodjob.batchai.names import JOB_NAME_LENGTH, label_value, resource_name
from horovodjob.document import Node

# Kubernetes adds five characters to a generated name.
PREFIX_LENGTH = JOB_NAME_LENGTH - 5
USED = ("name", "generateName", "namespace", "labels", "annotations")
# Fields that the API server sets.
SERVERS_OWN = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def job_metadata(top: Node, name: str | None, namespace: str | None, experiment: str | None) -> dict[str, Any]:
    """The metadata of the HorovodJob. generateName is kept if neither `name` nor the MPIJob gives a name."""
    given = top.child("metadata") or Node({}, "metadata", top.notes)
    metadata = _name(given, name)
    if (where := namespace if namespace is not None else given.text("namespace")) is not None:
        metadata["namespace"] = where
    labels = _strings(given, "labels")
    if experiment is not None:
        try:
            labels[LABEL_EXPERIMENT] = label_value(experiment)
        except ValueError as error:
            top.notes.refuse("--experiment", str(error))
    annotations = _strings(given, "annotations")
    annotations.pop(LAST_APPLIED, None)
    for key in given.value:
        if key not in (*USED, *SERVERS_OWN) and given.has(key):
            top.notes.warn(given.at(key), "is omitted: it refers to the MPIJob")
    return metadata | ({"labels": labels} if labels else {}) | ({"annotations": annotations} if annotations else {})


def _name(given: Node, name: str | None) -> dict[str, Any]:
    original = name if name is not None else given.text("name")
    generated = given.text("generateName")
    if original is None and generated:
        prefix = f"{_resource_name(given, 'generateName', generated, PREFIX_LENGTH - 1)}-"
        given.notes.warn(given.at("generateName"), "is kept: use `kubectl create`, or give --name for `kubectl apply`")
        return {"generateName": prefix}
    if generated and name is None:
        given.notes.warn(given.at("generateName"), "is omitted: metadata.name takes precedence")
    return {"name": _resource_name(given, "name", original or "", JOB_NAME_LENGTH)}


def _resource_name(given: Node, key: str, original: str, length: int) -> str:
    try:
        name = resource_name(original, length)
    except ValueError:
        given.notes.refuse(given.at("name"), "is missing: add it, or give --name")
        return "job"
    if name != original.removesuffix("-" if key == "generateName" else ""):
        given.notes.warn(
            given.at(key), f"is {name} now: a name has at most {length} lower-case letters, digits and hyphens"
        )
    return name


def _strings(node: Node, key: str) -> dict[str, str]:
    values = node.child(key)
    if values is None:
        return {}
    return {name: text for name in values.value if (text := values.scalar(name)) is not None}
