"""The termination of a job."""

from typing import Any

from horovodjob_cli.cluster import kube
from horovodjob_cli.cluster.watch import job_versions
from horovodjob_cli.jobs import batchai_records

Object = dict[str, Any]


def terminate(job: Object, *, wait: bool) -> Object:
    """The job after the request, or with `wait` after its end. A job that has ended is returned as it is."""
    if batchai_records.is_finished(job):
        return job
    job = _request(job)
    if wait:
        job = next(version for version in job_versions(job) if batchai_records.is_finished(version))
    return job


def _request(job: Object) -> Object:
    """The job after the request. A job that has ended in the meantime cannot change, and is returned as it is."""
    from kubernetes.client import ApiException

    try:
        return kube.patch_job(job, {"runPolicy": {"terminate": True}})
    except ApiException:
        found = kube.find_job(job["metadata"]["name"], job["metadata"]["namespace"])
        if found is None or not batchai_records.is_finished(found):
            raise
        return found
