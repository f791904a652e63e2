"""A user's pod template laid over a generated pod: a strategic merge by name, container, variable and key."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from horovodjob_operator.errors import InvalidJob

# Which field tells the items of a list apart, by the list's name; other lists are replaced as a whole.
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


def overlaid(base: Mapping[str, Any], patch: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`base` with `patch` over it; null removes a field. Neither argument is changed or shared with the result.

    Raises InvalidJob, with the path below `where`, for a patch that has another shape than a pod.
    """
    merged = {key: copy.deepcopy(value) for key, value in base.items()}
    for key, value in patch.items():
        path = f"{where}.{key}"
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif key in MERGE_KEYS and isinstance(old, list | type(None)):
            merged[key] = _merged_list(old or [], value, MERGE_KEYS[key], path)
        elif isinstance(old, Mapping):
            merged[key] = overlaid(old, _expect(Mapping, value, path), path)
        elif isinstance(old, list):
            merged[key] = copy.deepcopy(_expect(list, value, path))
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _expect(kind: Callable[..., Any] | type, value: Any, path: str) -> Any:
    if isinstance(value, kind):  # type: ignore[arg-type]
        return value
    wanted = "a list" if kind is list else "an object"
    raise InvalidJob(f"{path} must be {wanted}, but is {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _merged_list(base: list[Any], patch: Any, keys: tuple[str, ...], path: str) -> list[Any]:
    def identity(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(str(item.get(key, "TCP" if key == "protocol" else "")) for key in keys)

    merged = [copy.deepcopy(item) for item in base]
    for position, item in enumerate(_expect(list, patch, path)):
        at = f"{path}[{position}]"
        _expect(Mapping, item, at)
        if keys == ("name",) and not isinstance(item.get("name"), str):
            raise InvalidJob(f"{at} has no name, and items of {path} are told apart by it")
        twin = next((i for i, other in enumerate(merged) if identity(other) == identity(item)), None)
        if twin is None:
            merged.append({key: copy.deepcopy(value) for key, value in item.items() if value is not None})
        else:
            merged[twin] = overlaid(merged[twin], item, at)
    return merged
