"""Metadata that all objects of a job have."""

from typing import Any

from horovodjob.api.constants import API_VERSION, KIND
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names


def owner_reference(job: HorovodJob) -> dict[str, Any]:
    """The owner reference by which Kubernetes deletes the object with its job; it never blocks the job's deletion."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def object_metadata(job: HorovodJob, name: str, component: str) -> dict[str, Any]:
    """Metadata of an object of the job that is not a pod."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": names.object_labels(job) | {"app.kubernetes.io/component": component},
        "ownerReferences": [owner_reference(job)],
    }
