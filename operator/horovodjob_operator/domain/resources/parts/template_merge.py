"""The strategic merge of a pod template into a generated pod: list items with the same key are merged."""

from collections.abc import Callable, Mapping
from typing import Any

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


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any], where: str) -> dict[str, Any]:
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
            merged[key] = strategic_merge(old, _expect(Mapping, value, path), path)
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
            merged[match] = strategic_merge(merged[match], item, at)
    return merged
