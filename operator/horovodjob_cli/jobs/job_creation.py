"""Creation of a job with its Secrets and ConfigMaps: all of them or none."""

import base64
import contextlib
import sys
from collections.abc import Iterable
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND
from horovodjob.api.storage_account import key_secret_name
from horovodjob_cli.cluster import kube
from horovodjob_cli.errors import CliError
from horovodjob_cli.jobs import batchai_records
from horovodjob_cli.jobs.manifests import Submission

Object = dict[str, Any]


def check(submission: Submission) -> None:
    """Validate all objects. Raises CliError if the job exists."""
    job = submission.job
    metadata = job["metadata"]
    if existing := kube.find_job(metadata["name"], metadata["namespace"]):
        name, other = batchai_records.display_name(job), batchai_records.display_name(existing)
        if name == other:
            raise CliError(f"job {name} exists in workspace {metadata['namespace']}; delete it or choose another name")
        raise CliError(
            f"job {name} has the Kubernetes name {metadata['name']}, which job {other} already has; choose another name"
        )
    validate(submission)


def validate(submission: Submission) -> None:
    """Validate all objects with the API server without creating them; existing ones are valid."""
    from kubernetes.client import ApiException

    try:
        kube.create_job(submission.job, dry_run=True)
    except ApiException as error:
        if error.status != 409:
            raise
    for each in (*submission.secrets, *submission.config_maps):
        _create(each, dry_run=True)


def create(submission: Submission) -> Object:
    """Create the Secrets and ConfigMaps and then the job; delete them if the job cannot be created."""
    from kubernetes.client import ApiException

    made = []
    try:
        for each in (*submission.secrets, *submission.config_maps):
            if created := _create(each):
                made.append(created)
        job = kube.create_job(submission.job)
    except BaseException as error:
        # After a lost connection the job may exist, and then it needs the others.
        with contextlib.suppress(Exception):
            metadata = submission.job["metadata"]
            if isinstance(error, ApiException) or not kube.find_job(metadata["name"], metadata["namespace"]):
                delete(made)
        raise
    for each in made:
        if each["metadata"]["name"].startswith(f"{job['metadata']['name']}-"):
            _own(job, each)
    return job


def _create(wanted: Object, *, dry_run: bool = False) -> Object | None:
    """The new object; None if it exists with the same values. Raises CliError if it exists with others."""
    from kubernetes.client import ApiException

    kind, metadata = wanted["kind"], wanted["metadata"]
    options = {"dry_run": "All"} if dry_run else {}
    try:
        # The client's models of the answer have no kind.
        made: Object = kube.plain(_request("create", kind)(metadata["namespace"], wanted, **options))
        return {**made, "kind": kind}
    except ApiException as error:
        if error.status != 409:
            raise
    if kind == "ConfigMap" and not dry_run:
        # Its name begins with that of the job, which does not exist: it is what a killed command or a deleted job left,
        # and in the latter case the garbage collector is about to delete it.
        delete([wanted])
        return _create(wanted)
    existing = kube.plain(_request("read", kind)(metadata["name"], metadata["namespace"]))
    if kind == "Secret" and existing.get("data", {}) != _data(wanted):
        raise CliError(
            f"{kind} {metadata['name']} exists in {metadata['namespace']} with other values; if it is out of date, "
            f"delete it with `kubectl delete {kind.lower()} -n {metadata['namespace']} {metadata['name']}`"
        )
    return None


def find_key(account: str, namespace: str) -> str | None:
    """A key of a storage account that the user's sign-in at Azure may list; none if the namespace has its Secret."""
    from kubernetes.client import ApiException

    from horovodjob_cli.cluster.storage_keys import account_key

    try:
        kube.core().read_namespaced_secret(key_secret_name(account), namespace)
    except ApiException as error:
        if error.status not in (403, 404):
            raise
    else:
        return None
    try:
        return account_key(account)
    except CliError as error:
        sys.stderr.write(f"warning: no key of storage account {account} is given, and {error}\n")
        return None


def create_missing(wanted: Object) -> bool:
    """Create a Secret or ConfigMap, unless one with its name exists. Returns whether it was created."""
    from kubernetes.client import ApiException

    try:
        _request("create", wanted["kind"])(wanted["metadata"]["namespace"], wanted)
    except ApiException as error:
        if error.status != 409:
            raise
        return False
    return True


def _request(verb: str, kind: str) -> Any:
    """The client's method for a Secret or a ConfigMap."""
    return getattr(kube.core(), f"{verb}_namespaced_{'secret' if kind == 'Secret' else 'config_map'}")


def _data(wanted: Object) -> dict[str, str]:
    """The values as the API server stores them."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in wanted.get("stringData", {}).items()}
    return {**wanted.get("data", {}), **encoded}


def delete(made: Iterable[Object]) -> None:
    """Delete Secrets and ConfigMaps, as far as they exist."""
    from kubernetes.client import ApiException

    for each in made:
        try:
            _request("delete", each["kind"])(each["metadata"]["name"], each["metadata"]["namespace"])
        except ApiException as error:
            if error.status != 404:
                raise


def _own(job: Object, owned: Object) -> None:
    """Make the job the owner of an object that only this job uses."""
    metadata = job["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": metadata["name"], "uid": metadata["uid"]}
    _request("patch", owned["kind"])(
        owned["metadata"]["name"],
        owned["metadata"]["namespace"],
        {"metadata": {"ownerReferences": [owner]}},
        _content_type=kube.MERGE_PATCH,
    )
