"""The pod templates of users, merged with the generated pods: list items with the same key are merged."""

from collections.abc import Callable, Mapping
from typing import Any

from horovodjob.api.constants import LABEL_QUEUE, Role
from horovodjob.api.replicas import RolePods
from horovodjob_operator.errors import InvalidJob

# The fields that identify the items of a list, by the name of the list. Other lists are replaced as a whole.
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "tolerations": ("key", "effect"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "readinessGates": ("conditionType",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
}


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
    merged = _strategic_merge(pod, template, where)
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


def _strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`base` merged with `patch`, in which null removes a field. It shares parts with both and changes neither.

    Raises InvalidJob, with the path below `where`, for a patch that is not a pod template.
    """
    merged = dict(base)
    for key, value in patch.items():
        path = f"{where}.{key}"
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif key in MERGE_KEYS and isinstance(old, list | type(None)):
            merged[key] = _merge_list(old or [], value, MERGE_KEYS[key], path)
        elif isinstance(old, Mapping):
            merged[key] = _strategic_merge(old, _expect(Mapping, value, path), path)
        elif isinstance(old, list):
            merged[key] = _expect(list, value, path)
        else:
            merged[key] = value
    return merged


def _expect(kind: Callable[..., Any] | type, value: Any, path: str) -> Any:
    if isinstance(value, kind):  # type: ignore[arg-type]
        return value
    expected = "a list" if kind is list else "an object"
    raise InvalidJob(f"{path} must be {expected}, but is {_short_text(value)}")


def _short_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _merge_list(base: list[Any], patch: Any, keys: tuple[str, ...], path: str) -> list[Any]:
    def identity(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(str(item.get(key, "TCP" if key == "protocol" else "")) for key in keys)

    merged = list(base)
    for position, item in enumerate(_expect(list, patch, path)):
        at = f"{path}[{position}]"
        _expect(Mapping, item, at)
        if keys == ("name",) and not isinstance(item.get("name"), str):
            raise InvalidJob(f"{at} has no name, and the name identifies items of {path}")
        match = next((i for i, other in enumerate(merged) if identity(other) == identity(item)), None)
        if match is None:
            merged.append({key: value for key, value in item.items() if value is not None})
        else:
            merged[match] = _strategic_merge(merged[match], item, at)
    return merged
