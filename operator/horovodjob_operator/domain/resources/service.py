"""The headless Service with DNS names for the pods of a job."""

from typing import Any

from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.metadata import object_metadata


def service(job: HorovodJob) -> dict[str, Any]:
    """Each pod has a DNS name as soon as it has an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_metadata(job, job.metadata.name, "names"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.own_pod_labels(job),
            "ports": [{"name": "ssh", "port": names.SSH_PORT, "protocol": "TCP"}],
        },
    }
