"""The objects that spec.network enables: a headless Service, and a NetworkPolicy that isolates the pods of a job."""

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


def network_policy(job: HorovodJob) -> dict[str, Any]:
    """Only the pods of the job can connect to its pods."""
    pods = {"podSelector": {"matchLabels": names.own_pod_labels(job)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": object_metadata(job, job.metadata.name, "isolation"),
        "spec": {**pods, "policyTypes": ["Ingress"], "ingress": [{"from": [pods]}]},
    }
