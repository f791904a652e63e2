"""Creation of a job with its Secrets and ConfigMaps: all of them or none."""

import base64
import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND, LABEL_QUEUE
from horovodjob.api.managed_by import is_managed_by_operator
from horovodjob.api.storage_account import key_secret_name
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.claims import check_claims, claim_names
from horovodjob.client.cluster.default_image import default_image
from horovodjob.client.cluster.queues import check_queue
from horovodjob.client.errors import ClientError, to_client_error
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.manifests import Submission
from horovodjob.client.messages import message

Object = dict[str, Any]
# The garbage collector deletes what belongs to a deleted job within seconds.
DELETION_SECONDS = 30
RETRY_SECONDS = 0.5


def check(submission: Submission) -> None:
    """Validate all objects. Raises ClientError if the job exists."""
    job = submission.job
    metadata = job["metadata"]
    if existing := kube.find_job(metadata["name"], metadata["namespace"]):
        name, other = batchai_records.display_name(job), batchai_records.display_name(existing)
        if name == other:
            raise ClientError(
                f"job {name} exists in namespace {metadata['namespace']}; delete it or choose another name"
            )
        raise ClientError(
            f"job {name} has the Kubernetes name {metadata['name']}, which job {other} already has; choose another name"
        )
    validate(submission)


def validate(submission: Submission) -> None:
    """Validate all objects with the API server without creating them; existing ones are valid. Raises ClientError."""
    from kubernetes.client import ApiException

    check_needs(submission.job)
    try:
        kube.create_job(submission.job, dry_run=True)
    except ApiException as error:
        if error.status != 409:
            raise
    for each in (*submission.secrets, *submission.config_maps):
        if not _created(each, dry_run="All") and each["kind"] == "Secret" and (found := _existing(each)):
            _check_values(each, found)


def check_needs(job: Object) -> None:
    """Raises ClientError for a missing image, claim or queue. What the user may not read is not checked."""
    metadata, spec = job["metadata"], job["spec"]
    namespace = metadata["namespace"]
    gpus = spec.get("worker", {}).get("gpus", 1)
    if not spec.get("image") and is_managed_by_operator(spec) and default_image(namespace, gpus) == "":
        raise ClientError(
            f"the job has no image, and neither the operator nor namespace {namespace} has a default image: use "
            "`image=`, or set spec.image"
        )
    check_claims(claim_names(spec.get("volumes", ())), namespace)
    if queue := (metadata.get("labels") or {}).get(LABEL_QUEUE):
        check_queue(str(queue), namespace)


def create(submission: Submission) -> Object:
    """Create the Secrets and ConfigMaps and then the job, which owns those that only it uses.

    If the job cannot be created, those that were created for it are deleted, unless a job of its name uses them.
    Without the right to change one, it remains after the job.
    """
    from kubernetes.client import ApiException

    made: list[Object] = []
    used: list[Object] = []
    try:
        for each in (*submission.secrets, *submission.config_maps):
            found, is_new = obtain(each)
            used.append(found)
            if is_new:
                made.append(found)
        job = kube.create_job(submission.job)
    except BaseException as error:
        with contextlib.suppress(Exception):
            _leave(submission, made, error)
        raise
    for wanted, found in zip((*submission.secrets, *submission.config_maps), used, strict=True):
        if found["metadata"]["name"].startswith(f"{job['metadata']['name']}-"):
            try:
                _own(job, wanted, found)
            except ApiException as error:  # the job exists, and runs
                left = f"{wanted['kind']} {found['metadata']['name']} of job {batchai_records.display_name(job)}"
                message(f"warning: {left} is not deleted with it: {to_client_error(error)}")
    return job


def _leave(submission: Submission, made: Iterable[Object], error: BaseException) -> None:
    """Delete what was created for the job, unless the job of this name uses it, which then owns it.

    After a lost connection, that job can be the one of this command; after 409, that of a command that was killed
    before its job owned them.
    """
    metadata = submission.job["metadata"]
    job = kube.find_job(metadata["name"], metadata["namespace"]) if _may_exist(error) else None
    for each in made:
        if job is None or each["metadata"]["name"] not in _texts(job["spec"]):
            delete([each])
        elif each["metadata"]["name"].startswith(f"{metadata['name']}-"):
            _own(job, each, each)


def _may_exist(error: BaseException) -> bool:
    """Whether the API server has not answered that there is no such job."""
    from kubernetes.client import ApiException

    return not isinstance(error, ApiException) or error.status == 409 or not 400 <= (error.status or 0) < 500


def _texts(value: Any) -> set[str]:
    """All texts in the values of a spec."""
    if isinstance(value, Mapping | list):
        return {text for each in (value.values() if isinstance(value, Mapping) else value) for text in _texts(each)}
    return {value} if isinstance(value, str) else set()


def obtain(wanted: Object) -> tuple[Object, bool]:
    """The object as it is stored, and whether it is new. Raises ClientError if it exists with other values.

    One that belongs to a deleted job is about to be deleted with it: this waits until it is gone.
    """
    kind, metadata = wanted["kind"], wanted["metadata"]
    deadline = time.monotonic() + DELETION_SECONDS
    while True:
        if created := _created(wanted):
            return created, True
        found = _existing(wanted)
        if found is None:
            continue
        _check_values(wanted, found)
        owners = found["metadata"].get("ownerReferences")
        if not owners:
            return found, False
        if time.monotonic() > deadline or any(_exists(owner, metadata["namespace"]) for owner in owners):
            raise ClientError(
                f"{kind} {metadata['name']} exists in {metadata['namespace']} and belongs to {owners[0]['kind']} "
                f"{owners[0]['name']}; choose another name, or try again when it is deleted"
            )
        time.sleep(RETRY_SECONDS)


def _exists(owner: Object, namespace: str) -> bool:
    """Whether the owner is a job that exists and is not about to be deleted."""
    job = kube.find_job(owner["name"], namespace) if owner["kind"] == KIND else None
    metadata = job["metadata"] if job else {}
    return metadata.get("uid") == owner["uid"] and not metadata.get("deletionTimestamp")


def _created(wanted: Object, **options: str) -> Object | None:
    """The new object; None if one with its name exists."""
    from kubernetes.client import ApiException

    kind, namespace = wanted["kind"], wanted["metadata"]["namespace"]
    try:
        # The client's models of the answer have no kind.
        return {**kube.plain(_request("create", kind)(namespace, wanted, **options)), "kind": kind}
    except ApiException as error:
        if error.status != 409:
            raise
        return None


def _existing(wanted: Object) -> Object | None:
    from kubernetes.client import ApiException

    kind, metadata = wanted["kind"], wanted["metadata"]
    try:
        return {**kube.plain(_request("read", kind)(metadata["name"], metadata["namespace"])), "kind": kind}
    except ApiException as error:
        if error.status != 404:
            raise
        return None


def _check_values(wanted: Object, found: Object) -> None:
    """Raises ClientError if the existing object has other values."""
    kind, metadata = wanted["kind"], wanted["metadata"]
    fields = ("data", "binaryData")
    if any((found.get(field) or {}) != values for field, values in zip(fields, _values(wanted), strict=True)):
        raise ClientError(
            f"{kind} {metadata['name']} exists in {metadata['namespace']} with other values; if it is out of date, "
            f"delete it with `kubectl delete {kind.lower()} -n {metadata['namespace']} {metadata['name']}`"
        )


def find_key(account: str, namespace: str) -> str | None:
    """A key of a storage account that the user's sign-in at Azure may list; none if the namespace has its Secret."""
    from kubernetes.client import ApiException

    from horovodjob.client.cluster.storage_keys import account_key

    try:
        kube.core().read_namespaced_secret(key_secret_name(account), namespace)
    except ApiException as error:
        if error.status not in (403, 404):
            raise
    else:
        return None
    try:
        return account_key(account)
    except ClientError as error:
        message(f"warning: no key of storage account {account} is given, and {error}")
        return None


def create_missing(wanted: Object) -> Object | None:
    """Create a Secret or ConfigMap; None if one with its name exists."""
    return _created(wanted)


def _request(verb: str, kind: str) -> Any:
    """The client's method for a Secret or a ConfigMap."""
    return getattr(kube.core(), f"{verb}_namespaced_{'secret' if kind == 'Secret' else 'config_map'}")


def _values(wanted: Object) -> tuple[dict[str, str], dict[str, str]]:
    """`data` and `binaryData` as the API server stores them."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in wanted.get("stringData", {}).items()}
    return {**wanted.get("data", {}), **encoded}, wanted.get("binaryData", {})


def delete(made: Iterable[Object]) -> None:
    """Delete Secrets and ConfigMaps that this command has created, unless another command has begun to use them.

    A command that uses one changes it, and with it its resourceVersion.
    """
    from kubernetes.client import ApiException, V1DeleteOptions, V1Preconditions

    for each in made:
        metadata = each["metadata"]
        conditions = V1Preconditions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        body = V1DeleteOptions(preconditions=conditions)
        try:
            _request("delete", each["kind"])(metadata["name"], metadata["namespace"], body=body)
        except ApiException as error:
            if error.status not in (404, 409):
                raise


def change(found: Object, metadata: Object) -> bool:
    """Change the metadata of this object, by UID. Returns whether it still exists."""
    from kubernetes.client import ApiException

    own = found["metadata"]
    body = {"metadata": {**metadata, "uid": own["uid"]}}
    try:
        _request("patch", found["kind"])(own["name"], own["namespace"], body, _content_type=kube.MERGE_PATCH)
    except ApiException as error:
        if error.status not in (404, 409):
            raise
        return False
    return True


def _own(job: Object, wanted: Object, found: Object) -> None:
    """Make the job the owner of an object that only this job uses.

    The command that created it can delete it until then, because it could not create its job: it is created again.
    """
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    owned = {"ownerReferences": [owner]}
    while not change(found, owned):
        if _created({**wanted, "metadata": {**wanted["metadata"], **owned}}):
            return
        found = _existing(wanted) or found
