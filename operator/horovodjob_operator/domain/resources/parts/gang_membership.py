"""Membership of pods in the PodGroup of their job."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import Gang
from horovodjob.api.job import HorovodJob

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_SCHEDULER = "volcano"


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
