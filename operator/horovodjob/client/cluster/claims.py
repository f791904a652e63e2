"""Why a PersistentVolumeClaim has no volume yet."""

from collections.abc import Sequence
from typing import Any

from horovodjob.client.cluster import kube
from horovodjob.client.errors import NotFound

Object = dict[str, Any]
# The claim gets its volume when a pod that mounts it has a node.
NORMAL = ("WaitForFirstConsumer", "WaitForPodScheduled")


def claim_names(volumes: Sequence[Object]) -> list[str]:
    """The claims of volumes of a pod."""
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def check_claims(names: Sequence[str], namespace: str) -> None:
    """Raises NotFound for a claim that does not exist, as far as the user may read claims."""
    from kubernetes.client import ApiException

    for name in names:
        try:
            kube.core().read_namespaced_persistent_volume_claim(name, namespace)
        except ApiException as error:
            if error.status == 404:
                raise NotFound(
                    f"claim {name} does not exist in namespace {namespace}; see `kubectl get pvc -n {namespace}`"
                ) from None


def unbound_claims(names: Sequence[str], namespace: str) -> list[str]:
    """A sentence for each claim that has no volume, with the reason; none where the user may not read claims."""
    from kubernetes.client import ApiException

    found = []
    for name in names:
        try:
            claim = kube.plain(kube.core().read_namespaced_persistent_volume_claim(name, namespace))
            if claim.get("status", {}).get("phase") == "Bound":
                continue
            last = next(reversed(kube.events(claim) or []), None)
        except ApiException as error:
            if error.status == 404:
                found.append(f"claim {name} does not exist")
            continue
        if last is None or last.get("reason") not in NORMAL:
            found.append(f"claim {name} is not bound to a volume: {_reason(claim, last)}")
    return found


def _reason(claim: Object, event: Object | None) -> str:
    if event and event.get("message"):
        return str(event["message"]).strip().rstrip(".")
    storage_class = claim["spec"].get("storageClassName")
    if storage_class:
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        return f"StorageClass {storage_class} has not provided one; see `kubectl describe pvc {name} -n {namespace}`"
    return "it names no StorageClass, and the cluster has no default one or no free volume"
