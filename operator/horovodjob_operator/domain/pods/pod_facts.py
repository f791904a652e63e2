"""Conversion of a pod from the API server to the facts that decisions need. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horovodjob.api.constants import (
    ANNOTATION_HOSTS,
    ANNOTATION_WORKLOAD_UID,
    KIND,
    KUEUE_POD_GATE,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_REPLICA_INDEX,
    LABEL_ROLE,
    LABEL_SPEC_HASH,
    Role,
)
from horovodjob_operator.domain.foreign_text import clean_text
from horovodjob_operator.domain.names import SECRET_VOLUME
from horovodjob_operator.domain.pods.pod import (
    CONFIGURATION_ERRORS,
    IMAGE_ERRORS,
    ContainerTermination,
    ContainerWaiting,
    Pod,
)
from horovodjob_operator.domain.resources.parts.placement import membership

# Of the cluster autoscaler; the second is the older name.
PROVISIONING_REQUEST_ANNOTATIONS = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """A pod and the key (namespace, name) of the job that its labels name."""

    key: tuple[str, str]
    pod: Pod


def owned_pod(raw: Mapping[str, Any]) -> OwnedPod | None:
    """The facts of a pod; None if its labels are not those of a pod of a job."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    try:
        role = Role(labels[LABEL_ROLE])
        index, attempt = int(labels[LABEL_REPLICA_INDEX]), int(labels[LABEL_ATTEMPT])
        key = (metadata["namespace"], labels[LABEL_JOB])
    except (KeyError, ValueError):
        return None
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled, disruption = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    main, has_unready_node = _main_container(status, role), _has_unready_node(conditions)
    is_stopping = spec.get("activeDeadlineSeconds") == 1
    deletion_timestamp = _time(metadata.get("deletionTimestamp"))
    pod = Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        role=role,
        index=index,
        attempt=attempt,
        owner_uid=owner_uid(metadata),
        version=int(metadata.get("resourceVersion") or 0),
        phase=_phase(status, main, is_stopping=is_stopping),
        node=spec.get("nodeName") or "",
        scheduled_at=_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        address=status.get("podIP") or "",
        hosts=annotations.get(ANNOTATION_HOSTS) or "",
        has_pending_container=main.is_pending,
        created_at=_time(metadata.get("creationTimestamp")),
        is_ready=main.is_ready and not has_unready_node,
        has_unready_node=has_unready_node,
        is_terminating=deletion_timestamp is not None,
        deletion_timestamp=deletion_timestamp,
        termination=main.termination or _other_termination(status),
        waiting=None if main.has_started else _waiting(status, role),
        unschedulable_message=clean_text(scheduled.get("message")) if scheduled.get("status") == "False" else "",
        has_kueue_gate=any(gate.get("name") == KUEUE_POD_GATE for gate in spec.get("schedulingGates") or ()),
        reason=clean_text(status.get("reason")),
        message=clean_text(status.get("message")),
        has_running_sidecars=main.termination is not None and _has_running_container(status),
        is_stopping=is_stopping,
        disruption=(clean_text(disruption.get("reason")) or "Disrupted") if disruption.get("status") == "True" else "",
        provisioning_request=_provisioning_request(metadata.get("annotations") or {}),
        gang=membership(raw),
        secret_names=_secret_names(spec.get("volumes") or ()),
        workload_uid=annotations.get(ANNOTATION_WORKLOAD_UID) or "",
        spec_hash=labels.get(LABEL_SPEC_HASH, ""),
    )
    return OwnedPod(key, pod)


def _provisioning_request(annotations: Mapping[str, str]) -> str:
    return next((annotations[name] for name in PROVISIONING_REQUEST_ANNOTATIONS if name in annotations), "")


def owner_uid(metadata: Mapping[str, Any]) -> str:
    """UID of the HorovodJob that controls the object, or an empty string."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == KIND:
            return str(reference["uid"])
    return ""


def _secret_names(volumes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    volume = next((volume for volume in volumes if volume["name"] == SECRET_VOLUME), {})
    sources = (volume.get("projected") or {}).get("sources") or ()
    return tuple(dict.fromkeys(str(source["secret"]["name"]) for source in sources if "secret" in source))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True)
class MainContainer:
    """What the kubelet reports of the container with the name of the role; other containers may be injected."""

    is_pending: bool = False
    is_ready: bool = False
    has_started: bool = False
    termination: ContainerTermination | None = None


def _main_container(status: Mapping[str, Any], role: Role) -> MainContainer:
    """The facts of the main container, from its own status and from no condition of the pod."""
    containers: Iterable[Mapping[str, Any]] = status.get("containerStatuses") or ()
    own = next((container for container in containers if container["name"] == role), {})
    state = own.get("state") or {}
    return MainContainer(
        is_pending="waiting" in state,
        is_ready=bool(own.get("ready")) and "running" in state,
        has_started="running" in state or "terminated" in state,
        termination=_termination(own) if "terminated" in state else None,
    )


def _phase(status: Mapping[str, Any], main: MainContainer, *, is_stopping: bool) -> str:
    """Phase of the pod as its main container determines it.

    The kubelet reports the phase a second later, not at all while sidecars run, and Failed if a sidecar fails. With a
    reason, such as Evicted or DeadlineExceeded, the kubelet has ended the pod: an exit code of 0 is then no success but
    the answer to its signal. So a pod that the operator stops succeeds only if the kubelet says so.
    """
    phase: str = status.get("phase") or "Pending"
    if main.termination is None or (phase == "Failed" and status.get("reason")):
        return phase
    if main.termination.exit_code:
        return "Failed"
    return phase if is_stopping and phase != "Failed" else "Succeeded"


def _has_unready_node(conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the node controller has set the pod to not ready; a kubelet that does so sets a reason.

    (pkg/controller/util/node/controller_utils.go, MarkPodsNotReady)
    """
    ready, containers_ready = conditions.get("Ready", {}), conditions.get("ContainersReady", {})
    is_unready = ready.get("status") == "False" and not ready.get("reason")
    return is_unready and containers_ready.get("status") == "True"


def _has_running_container(status: Mapping[str, Any]) -> bool:
    return any("running" in (container.get("state") or {}) for container in status.get("containerStatuses") or ())


def _other_termination(status: Mapping[str, Any]) -> ContainerTermination | None:
    """How another container ended that failed, if the pod did without its main container having ended."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    if status.get("phase") != "Failed":
        return None
    ended = (container for container in containers if "terminated" in (container.get("state") or {}))
    failed = (container for container in ended if container["state"]["terminated"].get("exitCode", 0))
    return next(map(_termination, failed), None)


def _termination(container: Mapping[str, Any]) -> ContainerTermination:
    state = container["state"]["terminated"]
    return ContainerTermination(
        container=container["name"],
        exit_code=int(state.get("exitCode", 0)),
        reason=clean_text(state.get("reason")),
        message=clean_text(state.get("message")),
        finished_at=_time(state.get("finishedAt")),
    )


def _waiting(status: Mapping[str, Any], role: Role) -> ContainerWaiting | None:
    """Why the main container, or an init container before it, cannot start; sidecars do not delay it."""
    main = (container for container in status.get("containerStatuses") or () if container["name"] == role)
    for container in (*(status.get("initContainerStatuses") or ()), *main):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in IMAGE_ERRORS | CONFIGURATION_ERRORS:
            return ContainerWaiting(container["name"], waiting["reason"], clean_text(waiting.get("message")))
    return None
