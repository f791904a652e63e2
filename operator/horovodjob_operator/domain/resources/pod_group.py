"""A job's pods as one group that is placed all at once or not at all: the group, and what makes a pod its member."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import Gang
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.resources.resource_requests import added, quantity, requested

API_VERSIONS = {Gang.NATIVE: "scheduling.k8s.io/v1alpha2", Gang.VOLCANO: "scheduling.volcano.sh/v1beta1"}
REMEDIES = {
    Gang.NATIVE: "turn on the feature gates GenericWorkload and GangScheduling of Kubernetes 1.36 and this API",
    Gang.VOLCANO: "install Volcano",
}
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
VOLCANO_SCHEDULER = "volcano"


def join(pod: dict[str, Any], job: HorovodJob) -> None:
    """Makes a generated pod a member of the job's group, where it is to have one."""
    match job.spec.scheduling.gang:
        case Gang.NATIVE:
            pod["spec"]["schedulingGroup"] = {"podGroupName": job.metadata.name}
        case Gang.VOLCANO:
            pod["spec"]["schedulerName"] = VOLCANO_SCHEDULER
            pod["metadata"]["annotations"][GROUP_ANNOTATION] = job.metadata.name


def membership(raw: Mapping[str, Any]) -> Gang:
    """What kind of group a pod is in."""
    if (raw.get("spec") or {}).get("schedulingGroup"):
        return Gang.NATIVE
    return Gang.VOLCANO if GROUP_ANNOTATION in (raw["metadata"].get("annotations") or {}) else Gang.NONE


def group_spec(job: HorovodJob, launcher: Mapping[str, Any], worker: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of the job's PodGroup; the launcher is a member, for without it the workers would hold nodes in vain."""
    workers = job.spec.least_workers  # others of an elastic job may come later
    if job.spec.scheduling.gang is Gang.NATIVE:
        return {"schedulingPolicy": {"gang": {"minCount": workers + 1}}}
    # Volcano keeps the group back until its queue has room for all of this.
    needed = added((requested(launcher), *[requested(worker)] * workers))
    given = {
        "queue": job.metadata.annotations.get(QUEUE_ANNOTATION),
        "priorityClassName": job.spec.priority_class_name,
    }
    return {
        "minMember": workers + 1,
        "minResources": {name: quantity(amount) for name, amount in sorted(needed.items())},
        **{key: value for key, value in given.items() if value},
    }


def not_served(gang: Gang) -> str:
    """What to tell a user whose cluster does not have the PodGroup that the job asks for."""
    return (
        f"spec.scheduling.gang is {gang}, and this cluster does not serve PodGroup of {API_VERSIONS[gang]}: "
        f"{REMEDIES[gang]}, or set it to {Gang.NONE} while the job is suspended"
    )
