"""Spot nodes, which AKS can evict at any time: workers accept and prefer them, launchers avoid them."""

from typing import Any

from horovodjob.api.constants import AKS_PRIORITY_TAINT, SPOT_LABELS

TOLERATION = {"key": AKS_PRIORITY_TAINT, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}


def prefer_spot_nodes(pod_spec: dict[str, Any]) -> None:
    """Makes a generated pod accept and prefer spot nodes."""
    pod_spec["tolerations"].append(dict(TOLERATION))
    preferred = [{"weight": 100, "preference": {"matchExpressions": [label]}} for label in _expressions("In")]
    pod_spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def avoid_spot_nodes(pod_spec: dict[str, Any]) -> None:
    """Makes a generated pod require a node that is not a spot node."""
    required = {"nodeSelectorTerms": [{"matchExpressions": _expressions("NotIn")}]}
    pod_spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _expressions(operator: str) -> list[dict[str, Any]]:
    """A node is a spot node if one of its labels says so."""
    return [{"key": label, "operator": operator, "values": ["spot"]} for label in SPOT_LABELS]
