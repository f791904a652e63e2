"""The PodGroup of a job, whose pods the scheduler places all at once or not at all."""

from collections.abc import Iterable, Mapping
from typing import Any

from horovodjob.api.constants import LABEL_JOB_UID, LABEL_SPEC_HASH, Gang
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.parts.metadata import object_metadata
from horovodjob_operator.domain.resources.parts.resource_requests import format_quantity, pod_requests, total
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.errors import InvalidJob

VOLCANO_API_VERSION = "scheduling.volcano.sh/v1beta1"
NATIVE_GROUP = "scheduling.k8s.io"
# The versions in which the PodGroup of Kubernetes has the same fields, the preferred one first.
NATIVE_VERSIONS = ("v1beta1", "v1alpha2")
NOT_SERVED = {
    Gang.NATIVE: f"PodGroup of {NATIVE_GROUP}: turn on its feature gates and its API, {NATIVE_VERSIONS[0]} of "
    f"Kubernetes 1.37 or {NATIVE_VERSIONS[1]} of 1.36",
    Gang.VOLCANO: f"PodGroup of {VOLCANO_API_VERSION}: install Volcano",
}
# The scheduler of Kubernetes places no gang whose pods differ in these.
COMMON_FIELDS = ("priorityClassName", "schedulerName")
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


def native_version(served: Iterable[str]) -> str | None:
    """The API version for PodGroups of Kubernetes, given the versions of their group that the API server serves."""
    served = set(served)
    return next((f"{NATIVE_GROUP}/{version}" for version in NATIVE_VERSIONS if version in served), None)


def job_pod_group(job: HorovodJob, api_version: str) -> dict[str, Any]:
    """The PodGroup that the spec requires. Raises InvalidJob like the builders of the pods."""
    metadata = object_metadata(job, job.metadata.name, "gang")
    # A PodGroup is immutable, and a job can be resumed with another size.
    metadata["labels"] |= {LABEL_JOB_UID: job.metadata.uid, LABEL_SPEC_HASH: names.spec_hash(job)}
    spec = _group_spec(job, launcher_pod(job, 0, "", ""), worker_pod(job, 0, 0, ""))
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def _group_spec(job: HorovodJob, launcher: Mapping[str, Any], worker: Mapping[str, Any]) -> dict[str, Any]:
    """The launcher is a member: without it the workers would occupy nodes without effect."""
    workers = job.spec.min_workers  # Further workers of an elastic job can join later.
    if job.spec.scheduling.gang is Gang.NATIVE:
        for field in COMMON_FIELDS:
            _check_common(field, launcher["spec"].get(field), worker["spec"].get(field))
        # Kubernetes 1.37 places no pod whose priority is not that of its group; 1.36 has the field behind another gate,
        # and drops it without.
        priority = launcher["spec"].get("priorityClassName")
        policy = {"schedulingPolicy": {"gang": {"minCount": workers + 1}}}
        return policy | ({"priorityClassName": priority} if priority else {})
    # Volcano does not admit the group before its queue has capacity for all of these resources.
    requests = total((pod_requests(launcher), *[pod_requests(worker)] * workers))
    optional = {
        "queue": job.metadata.annotations.get(QUEUE_ANNOTATION),
        "priorityClassName": job.spec.priority_class_name,
    }
    return {
        "minMember": workers + 1,
        "minResources": {name: format_quantity(amount) for name, amount in sorted(requests.items())},
        **{key: value for key, value in optional.items() if value},
    }


def _check_common(field: str, launcher: Any, worker: Any) -> None:
    """Raises InvalidJob if the roles differ in a field in which the pods of a gang must not differ."""
    if launcher != worker:
        raise InvalidJob(
            f"spec.scheduling.gang is {Gang.NATIVE}, whose pods all have one {field}: it is {launcher or 'not set'} in "
            f"the launcher and {worker or 'not set'} in the workers; set it in both templates or in none"
        )


def not_served_message(gang: Gang) -> str:
    """What a user can do whose cluster does not serve the PodGroup of the job."""
    return (
        f"spec.scheduling.gang is {gang}, and this cluster does not serve {NOT_SERVED[gang]}, or set it to {Gang.NONE} "
        "while the job is suspended"
    )
