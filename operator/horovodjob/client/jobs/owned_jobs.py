"""The HorovodJob of a Kubernetes Job, such as a run of a CronJob: a pod that is started again finds its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import retried
from horovodjob.client.errors import ClientError, Stalled, TimedOut, UsageError
from horovodjob.client.jobs import job_creation, termination
from horovodjob.client.jobs.manifests import Submission
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message

Object = dict[str, Any]
# A registry that does not answer, or a Secret that a controller has yet to write, is no reason to end a run.
STALLED_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Owner:
    """A Job of Kubernetes, which the HorovodJob is deleted with."""

    name: str
    uid: str

    @property
    def reference(self) -> Object:
        """The owner reference of the HorovodJob."""
        return {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.uid}


def parsed_owner(option: str | None, name: str | None) -> Owner | None:
    """The owner that --owner-job names as NAME/UID; `name` is that of --name. Raises UsageError."""
    if option is None:
        return None
    if name is not None:
        raise UsageError("`owner_job=` also names the job: remove `name=`")
    name, _, uid = option.partition("/")
    if not (name and uid) or "/" in uid:
        raise UsageError(f"`owner_job=` {option!r} must be NAME/UID of a Job of Kubernetes in the namespace")
    return Owner(name, uid)


def obtain(owner: Owner, submission: Callable[[], Submission], namespace: str | None, limit: WaitLimit) -> Object:
    """The existing job of this owner, or else a new one. Raises UsageError if the new one could be deleted too early.

    The submission is read only for a new job: its file can be that of a later commit.
    """

    def retry(request: Callable[[], Object | None]) -> Any:
        return retried(request, lambda: limit.check_time(f"job {owner.name} was not created"))

    if found := retry(lambda: _existing(owner, namespace)):
        message(f"job {found['metadata']['name']} exists already, created for Job {owner.name}")
        return dict(found)
    submitted = submission()
    _set_owner(submitted.job, owner, kube.namespace(namespace))
    return dict(retry(lambda: _create(submitted, owner, namespace)))


def follow(job: Object, wait: Callable[[Object], Object]) -> Object:
    """The job after its end, which `wait` returns.

    A job that is not waited for any longer is terminated: it could train beside a later run. Raises Stalled, TimedOut.
    """
    try:
        return wait(job)
    except (Stalled, TimedOut) as error:
        termination.terminate(job, wait=False)
        raise type(error)(f"{error}; the job is terminated, so that it does not begin beside a later run") from None


def _create(submission: Submission, owner: Owner, namespace: str | None) -> Object:
    from kubernetes.client import ApiException

    job_creation.validate(submission)
    try:
        return job_creation.create(submission)
    except ApiException as error:
        # Another pod of the owner was faster, or the response to an earlier request was lost.
        if error.status == 409 and (found := _existing(owner, namespace)):
            return found
        raise


def _set_owner(job: Object, owner: Owner, namespace: str) -> None:
    metadata = job["metadata"]
    if metadata["namespace"] != namespace:
        raise UsageError(
            f"metadata.namespace is {metadata['namespace']}, and `owner_job=` is in {namespace}, so Kubernetes would "
            "delete the job: remove metadata.namespace"
        )
    if (job["spec"].get("runPolicy") or {}).get("ttlSecondsAfterFinished") is not None:
        raise UsageError(
            "runPolicy.ttlSecondsAfterFinished can delete the job before `owner_job=` ends, and another pod of it "
            "would run the job again; set ttlSecondsAfterFinished of the owner, which the job is deleted with"
        )
    metadata["ownerReferences"] = [owner.reference]


def _existing(owner: Owner, namespace: str | None) -> Object | None:
    name, namespace = kube.resource_name(owner.name), kube.namespace(namespace)
    found = kube.find_job(name, namespace)
    if found and not any(each["uid"] == owner.uid for each in found["metadata"].get("ownerReferences") or ()):
        raise ClientError(
            f"job {name} exists in namespace {namespace} and does not belong to Job {owner.name} with UID {owner.uid}; "
            "delete it, or give the Job another name"
        )
    return found
