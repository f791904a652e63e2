"""The pod templates of users, merged with the generated pods."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import LABEL_QUEUE, Role
from horovodjob.api.replicas import RolePods
from horovodjob_operator.domain.resources.parts.template_merge import strategic_merge
from horovodjob_operator.errors import InvalidJob


def merge_template(pod: dict[str, Any], pods: RolePods, role: Role) -> dict[str, Any]:
    """The pod, merged with the template of the user.

    Raises InvalidJob for a template that changes fields of the operator.
    """
    if not pods.template:
        return pod
    where = f"spec.{role.value}.template"
    template = {key: value for key, value in pods.template.items() if key in ("metadata", "spec")}
    unknown = sorted(set(pods.template) - set(template) - {"apiVersion", "kind"})
    if unknown:
        raise InvalidJob(f"{where} has the field {unknown[0]}; a pod template has metadata and spec")
    metadata = template.get("metadata") or {}
    if isinstance(metadata, Mapping):
        fields = sorted(set(metadata) - {"labels", "annotations", "creationTimestamp"})
        if fields:
            raise InvalidJob(
                f"{where}.metadata.{fields[0]} cannot be set: of the metadata only labels and annotations can"
            )
        template["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    merged = strategic_merge(pod, template, where)
    _check_operator_fields(merged, pod, where, role)
    return merged


def _check_operator_fields(merged: dict[str, Any], pod: dict[str, Any], where: str, role: Role) -> None:
    """Raises InvalidJob if the template changed a field by which the operator starts or finds the pod."""
    metadata, spec = merged.get("metadata"), merged.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise InvalidJob(f"{where}.spec and {where}.metadata must be objects")
    for key, value in pod["metadata"]["labels"].items():
        if (metadata.get("labels") or {}).get(key) != value:
            raise InvalidJob(f"{where}.metadata.labels: the label {key} is the operator's, remove it")
    if LABEL_QUEUE in (metadata.get("labels") or {}):
        raise InvalidJob(
            f"{where}.metadata.labels: set the label {LABEL_QUEUE} on the HorovodJob and not on its pods: each of them "
            "would wait in the queue alone"
        )
    if spec.get("restartPolicy") != "Never":
        raise InvalidJob(f"{where}.spec.restartPolicy must not be set: the operator restarts the whole job")
    containers = spec.get("containers") or ()
    own: Mapping[str, Any] = next((c for c in containers if c.get("name") == role.value), {})
    for field in ("command", "args"):
        if own.get(field) != pod["spec"]["containers"][0].get(field):
            raise InvalidJob(
                f"{where}.spec.containers[name={role.value}].{field} must not be set: spec.script, spec.command or "
                "spec.launcherCommand says what runs"
            )
