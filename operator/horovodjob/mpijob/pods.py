"""Pod templates of launcher and workers: common fields become fields of the spec, the others stay in a template."""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from horovodjob.api.constants import GPU_RESOURCE, LABEL_QUEUE
from horovodjob.document import Node

# Fields of a pod that the spec also has.
SHARED = ("nodeSelector", "tolerations", "priorityClassName", "serviceAccountName", "imagePullSecrets")
# Fields that the operator sets itself.
OPERATORS_OWN = ("restartPolicy", "hostname", "subdomain", "activeDeadlineSeconds", "nodeName")
PROBES = ("readinessProbe", "livenessProbe", "startupProbe")
CONTAINERS_OWN = ("name", "image", "command", "args", "env", "envFrom", "resources", "volumeMounts", "imagePullPolicy")
OWN_PREFIXES = ("HOROVODJOB_", "AZ_BATCHAI_")
# Labels of pods that the operator sets, or that must be on the job.
OWN_LABELS = (LABEL_QUEUE, *(f"app.kubernetes.io/{key}" for key in ("name", "instance", "component", "managed-by")))
OWN_LABEL_PREFIX = "horovodjob.dev/"


@dataclass(slots=True)
class RolePod:
    """The pod template of a role; conversion removes the fields that it converts."""

    node: Node | None
    pod: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    main: dict[str, Any] = field(default_factory=dict)
    sidecars: list[Any] = field(default_factory=list)
    container: Node | None = None

    @property
    def exists(self) -> bool:
        """Whether the MPIJob has this role."""
        return self.node is not None


def read_pod(replica: Node | None, main_container: str | None) -> RolePod:
    """The template of a replica; records errors of its structure."""
    template = replica.child("template") if replica is not None else None
    spec = template.child("spec") if template is not None else None
    if replica is None:
        return RolePod(None)
    containers = spec.children("containers") if spec is not None else []
    if spec is None or not containers:
        where = spec.at("containers") if spec is not None else replica.at("template.spec.containers")
        replica.notes.refuse(where, "is missing: add a container")
        return RolePod(replica)
    main = next((node for node in containers if node.value.get("name") == main_container), containers[0])
    kept = _metadata(template)
    pod = {key: deepcopy(value) for key, value in spec.value.items() if key != "containers" and value is not None}
    sidecars = [deepcopy(dict(node.value)) for node in containers if node is not main]
    return RolePod(spec, pod, kept, deepcopy(dict(main.value)), sidecars, main)


def _metadata(template: Node | None) -> dict[str, Any]:
    """Labels and annotations of a pod template, without the labels of the operator."""
    metadata = template.child("metadata") if template is not None else None
    if template is None or metadata is None:
        return {}
    kept = {
        key: deepcopy(dict(values.value))
        for key in ("labels", "annotations")
        if (values := metadata.child(key)) is not None
    }
    for label in list(kept.get("labels", ())):
        if label in OWN_LABELS or label.startswith(OWN_LABEL_PREFIX):
            del kept["labels"][label]
            metadata.notes.warn(metadata.at("labels"), f"{label} is omitted: the operator sets it on the pods itself")
    for key in metadata.value:
        if key not in ("labels", "annotations", "creationTimestamp") and metadata.has(key):
            metadata.notes.warn(
                metadata.at(key), "is omitted: of a pod's metadata only labels and annotations are used"
            )
    for key in template.value:
        if key not in ("metadata", "spec") and template.has(key):
            template.notes.warn(template.at(key), "is omitted: a pod template has metadata and spec")
    return kept


def shared_fields(worker: RolePod, launcher: RolePod) -> dict[str, Any]:
    """Fields with the same value in both roles, removed from both."""
    spec: dict[str, Any] = {}
    for key in SHARED:
        if (value := _take_equal(worker.pod, launcher.pod, key, worker, launcher)) is not None:
            spec[key] = value
    for key in ("imagePullPolicy", "envFrom"):
        if (value := _take_equal(worker.main, launcher.main, key, worker, launcher)) is not None:
            spec[key] = value
    volumes = _take_common(worker.pod, launcher.pod, "volumes", worker, launcher)
    names = {volume.get("name") for volume in volumes if isinstance(volume, Mapping)}
    mounts = _take_common(worker.main, launcher.main, "volumeMounts", worker, launcher, among=names)
    return spec | ({"volumes": volumes} if volumes else {}) | ({"volumeMounts": mounts} if mounts else {})


def role_template(role: str, pod: RolePod) -> dict[str, Any]:
    """The remaining fields of the role's pod, as a template."""
    if pod.node is None or pod.container is None:
        return {}
    notes = pod.node.notes
    for key in OPERATORS_OWN:
        if pod.pod.pop(key, None) is not None:
            notes.warn(pod.node.at(key), "is omitted: the operator sets it itself")
    for key in (*PROBES, "ports"):
        if pod.main.pop(key, None) is not None:
            notes.warn(pod.container.at(key), "is omitted: the operator sets its own")
    own = {key: value for key, value in pod.main.items() if key not in CONTAINERS_OWN or key in ("env", "envFrom")}
    own |= {key: pod.main[key] for key in ("volumeMounts", "imagePullPolicy", "resources") if pod.main.get(key)}
    if "image" in pod.main:
        own["image"] = pod.main["image"]
    own = {key: value for key, value in own.items() if value not in (None, [], {})}
    containers = ([{"name": role} | own] if own else []) + pod.sidecars
    spec = {key: value for key, value in pod.pod.items() if value not in (None, [], {})}
    spec |= {"containers": containers} if containers else {}
    return ({"metadata": pod.metadata} if pod.metadata else {}) | ({"spec": spec} if spec else {})


def resources(pod: RolePod) -> tuple[dict[str, Any], int]:
    """Requests and limits without GPUs, and the number of GPUs."""
    given = pod.main.pop("resources", None)
    if given is None or pod.container is None:
        return {}, 0
    node = pod.container.child("resources")
    if node is None:
        return {}, 0
    kept: dict[str, Any] = {}
    counts = []
    for kind in ("requests", "limits"):
        if (values := node.child(kind)) is None:
            continue
        if (count := values.number(GPU_RESOURCE, 0, 1024)) is not None:
            counts.append(count)
        rest = {key: _quantity(value) for key, value in values.value.items() if key != GPU_RESOURCE}
        if rest:
            kept[kind] = rest
    if claims := node.items("claims"):
        pod.main["resources"] = {"claims": deepcopy(claims)}
    for key in node.value:
        if key not in ("requests", "limits", "claims") and node.has(key):
            node.notes.warn(node.at(key), "is omitted: resources have requests, limits and claims")
    return kept, max(counts, default=0)


def environment(pod: RolePod) -> dict[str, dict[str, Any]]:
    """Variables of the main container by name; the last one takes precedence."""
    if pod.container is None:
        return {}
    pod.main.pop("env", None)
    variables: dict[str, dict[str, Any]] = {}
    for node in pod.container.children("env"):
        name = node.required_text("name")
        if name is None:
            continue
        if name.startswith(OWN_PREFIXES):
            node.notes.warn(node.at("name"), f"{name} is omitted: the operator sets variables with this prefix")
            continue
        variable = {key: value for key, value in node.value.items() if value is not None}
        if (value := node.scalar("value")) is not None:
            variable["value"] = value
            if re.search(rf"\$(?:{re.escape(name)}\b|\{{{re.escape(name)}\}})", value):
                sentence = f"nothing replaces ${name} in the value of {name}: write what the image has there"
                node.notes.warn(node.at("value"), sentence)
        if name in variables and variables[name] != variable:
            node.notes.warn(node.at("name"), f"an earlier value of {name} is omitted: the last one has an effect")
        variables[name] = variable
    return variables


def runs_as_root(pods: Sequence[RolePod], ssh_directory: str, *, asks: bool) -> bool:
    """Whether the pods run as root: by a field, by mpirun's option, or as images of MPIJobs do by default."""
    users = [_user(pod) for pod in pods if pod.exists]
    if 0 in users or asks:
        return True
    return None in users and ssh_directory.startswith("/root")


def _user(pod: RolePod) -> int | None:
    for owner in (pod.main, pod.pod):
        context = owner.get("securityContext")
        if isinstance(context, Mapping):
            if isinstance(context.get("runAsUser"), int):
                return int(context["runAsUser"])
            if context.get("runAsNonRoot") is True:
                return 1
    return None


def _take_equal(first: dict[str, Any], second: dict[str, Any], key: str, worker: RolePod, launcher: RolePod) -> Any:
    if not worker.exists or not launcher.exists:
        return first.pop(key, None) or second.pop(key, None)
    if first.get(key) in (None, [], {}) or first.get(key) != second.get(key):
        return None
    second.pop(key)
    return first.pop(key)


def _take_common(
    first: dict[str, Any],
    second: dict[str, Any],
    key: str,
    worker: RolePod,
    launcher: RolePod,
    *,
    among: set[Any] | None = None,
) -> list[Any]:
    """Items that both lists have, removed from both."""
    lists = [value if isinstance(value := owner.get(key), list) else [] for owner in (first, second)]
    only_one = not worker.exists or not launcher.exists
    common = [
        item
        for item in lists[0] or (lists[1] if only_one else [])
        if (only_one or item in lists[1])
        and (among is None or (isinstance(item, Mapping) and item.get("name") in among))
    ]
    for owner, items in zip((first, second), lists, strict=True):
        if items:
            owner[key] = [item for item in items if item not in common]
    return common


def _quantity(value: Any) -> Any:
    return str(value) if isinstance(value, float) else value
