"""The termination of a job."""

from typing import Any

from horovodjob.client.cluster import kube
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.wait_limit import WaitLimit, limited_versions

Object = dict[str, Any]


def terminate(job: Object, *, wait: bool, timeout: float | None = None) -> Object:
    """The job after the request, or with `wait` after its end. A job that has ended is returned as it is.

    Raises TimedOut.
    """
    if batchai_records.is_finished(job):
        return job
    job = _request(job)
    if wait:
        limit = WaitLimit(timeout, waits_for_stalled=True)
        job = next(version for version in limited_versions(job, limit) if batchai_records.is_finished(version))
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
