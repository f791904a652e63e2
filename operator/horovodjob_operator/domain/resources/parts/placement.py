"""Where pods are placed: on spot nodes or not, and together with the other pods of their gang."""

from collections.abc import Iterable, Mapping
from typing import Any

from horovodjob.api.constants import AKS_POOL_LABEL, AKS_PRIORITY_TAINT, POOL_LABELS, SPOT_LABELS, Gang, Role
from horovodjob.api.job import HorovodJob

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_SCHEDULER = "volcano"
# A spot node that has failed is worse than another node.
SPOT_WEIGHT, AVOIDANCE_WEIGHT = 50, 100
SPOT_TOLERATION = {"key": AKS_PRIORITY_TAINT, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}


def node_selector(job: HorovodJob, role: Role) -> dict[str, str]:
    """Required labels of the node of a generated pod, by `pool` and `nodeSelector`.

    The launcher of a spot job never runs on a spot node, so it is not bound to the pool of the workers, which can have
    spot nodes only.
    """
    spec = job.spec
    labels = {**(spec.node_selector or {}), **({AKS_POOL_LABEL: spec.pool} if spec.pool else {})}
    if not spec.spot or role is not Role.LAUNCHER:
        return labels
    spot = dict.fromkeys(SPOT_LABELS, "spot")
    return {label: value for label, value in labels.items() if label not in POOL_LABELS and spot.get(label) != value}


def selects_pool(job: HorovodJob, role: Role) -> bool:
    """Whether a pod is bound to a pool of AKS, by the spec or by the template of a launcher."""
    template = (job.spec.launcher.template or {}).get("spec")
    own = template.get("nodeSelector") if role is Role.LAUNCHER and isinstance(template, Mapping) else None
    return AKS_POOL_LABEL in node_selector(job, role) or (isinstance(own, Mapping) and bool(own.get(AKS_POOL_LABEL)))


def prefer_spot_nodes(pod_spec: dict[str, Any]) -> None:
    """Makes a generated pod accept and prefer spot nodes."""
    pod_spec["tolerations"].append(dict(SPOT_TOLERATION))
    preferred = [{"weight": SPOT_WEIGHT, "preference": {"matchExpressions": [label]}} for label in _expressions("In")]
    pod_spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def avoid_spot_nodes(pod_spec: dict[str, Any]) -> None:
    """Makes a generated pod require a node that is not a spot node."""
    required = {"nodeSelectorTerms": [{"matchExpressions": _expressions("NotIn")}]}
    pod_spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def avoid_nodes(pod: dict[str, Any], nodes: Iterable[str]) -> dict[str, Any]:
    """The pod, which prefers all other nodes to these, in addition to what its template prefers."""
    # Kubernetes allows one value in each field selector of a node.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    if not fields:
        return pod
    affinity = dict(pod["spec"].get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    others = of_nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    own = {"weight": AVOIDANCE_WEIGHT, "preference": {"matchFields": fields}}
    of_nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [*others, own]
    return pod | {"spec": pod["spec"] | {"affinity": affinity | {"nodeAffinity": of_nodes}}}


def _expressions(operator: str) -> list[dict[str, Any]]:
    """A node is a spot node if one of its labels says so."""
    return [{"key": label, "operator": operator, "values": ["spot"]} for label in SPOT_LABELS]


def add_membership(pod: dict[str, Any], job: HorovodJob) -> None:
    """Makes a generated pod a member of the PodGroup of the job, if the spec requires one."""
    match job.spec.scheduling.gang:
        case Gang.NATIVE:
            pod["spec"]["schedulingGroup"] = {"podGroupName": job.metadata.name}
        case Gang.VOLCANO:
            pod["spec"]["schedulerName"] = VOLCANO_SCHEDULER
            pod["metadata"]["annotations"][GROUP_ANNOTATION] = job.metadata.name


def membership(raw: Mapping[str, Any]) -> Gang:
    """Kind of the PodGroup that a pod is a member of."""
    if (raw.get("spec") or {}).get("schedulingGroup"):
        return Gang.NATIVE
    return Gang.VOLCANO if GROUP_ANNOTATION in (raw["metadata"].get("annotations") or {}) else Gang.NONE
