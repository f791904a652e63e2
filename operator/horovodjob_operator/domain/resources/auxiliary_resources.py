"""The optional objects of a job, each with the name of the job."""

from typing import Any

from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.resources.network_policy import network_policy
from horovodjob_operator.domain.resources.service import service


def auxiliary_resources(job: HorovodJob, *, enabled: bool = True) -> list[dict[str, Any]]:
    """The optional objects that the spec enables, or those that it does not enable."""
    builders = ((job.spec.network.isolate, network_policy), (job.spec.network.service, service))
    return [build(job) for is_enabled, build in builders if is_enabled is enabled]
