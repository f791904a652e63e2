"""The NetworkPolicy that isolates the pods of a job."""

from typing import Any

from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.metadata import object_metadata


def network_policy(job: HorovodJob) -> dict[str, Any]:
    """Only the pods of the job can connect to its pods."""
    pods = {"podSelector": {"matchLabels": names.own_pod_labels(job)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": object_metadata(job, job.metadata.name, "isolation"),
        "spec": {**pods, "policyTypes": ["Ingress"], "ingress": [{"from": [pods]}]},
    }
