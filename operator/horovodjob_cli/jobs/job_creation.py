"""Creation of a job with its Secrets: all of them or none."""

import base64
import contextlib
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND
from horovodjob_cli.cluster import kube
from horovodjob_cli.errors import CliError
from horovodjob_cli.jobs import batchai_records
from horovodjob_cli.jobs.manifests import Submission

Object = dict[str, Any]


def check(submission: Submission) -> None:
    """Validate all objects with the API server without creating them. Raises CliError if the job exists."""
    job = submission.job
    metadata = job["metadata"]
    if existing := kube.find_job(metadata["name"], metadata["namespace"]):
        name, other = batchai_records.display_name(job), batchai_records.display_name(existing)
        if name == other:
            raise CliError(f"job {name} exists in workspace {metadata['namespace']}; delete it or choose another name")
        raise CliError(
            f"job {name} has the Kubernetes name {metadata['name']}, which job {other} already has; choose another name"
        )
    kube.create_job(job, dry_run=True)
    for secret in submission.secrets:
        _create_secret(secret, dry_run=True)


def create(submission: Submission) -> Object:
    """Create the Secrets and then the job; delete the Secrets if the job cannot be created."""
    from kubernetes.client import ApiException

    made = []
    try:
        for secret in submission.secrets:
            if created := _create_secret(secret):
                made.append(created)
        job = kube.create_job(submission.job)
    except BaseException as error:
        # After a lost connection the job may exist, and then it needs the Secrets.
        with contextlib.suppress(Exception):
            metadata = submission.job["metadata"]
            if isinstance(error, ApiException) or not kube.find_job(metadata["name"], metadata["namespace"]):
                _delete_secrets(made)
        raise
    for secret in made:
        if secret["metadata"]["name"].startswith(f"{job['metadata']['name']}-"):
            _own(job, secret)
    return job


def _create_secret(secret: Object, *, dry_run: bool = False) -> Object | None:
    """The new Secret; None if it exists with the same values. Raises CliError if it exists with others."""
    from kubernetes.client import ApiException

    metadata = secret["metadata"]
    options = {"dry_run": "All"} if dry_run else {}
    try:
        return dict(kube.plain(kube.core().create_namespaced_secret(metadata["namespace"], secret, **options)))
    except ApiException as error:
        if error.status != 409:
            raise
    existing = kube.plain(kube.core().read_namespaced_secret(metadata["name"], metadata["namespace"]))
    if existing.get("data", {}) != _data(secret):
        raise CliError(
            f"Secret {metadata['name']} exists in {metadata['namespace']} with other values; if it is out of date, "
            f"delete it with `kubectl delete secret -n {metadata['namespace']} {metadata['name']}`"
        )
    return None


def _data(secret: Object) -> dict[str, str]:
    """The values as the API server stores them."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in secret.get("stringData", {}).items()}
    return {**secret.get("data", {}), **encoded}


def _delete_secrets(secrets: list[Object]) -> None:
    for secret in secrets:
        kube.core().delete_namespaced_secret(secret["metadata"]["name"], secret["metadata"]["namespace"])


def _own(job: Object, secret: Object) -> None:
    """Make the job the owner of a Secret that only this job uses."""
    metadata = job["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": metadata["name"], "uid": metadata["uid"]}
    kube.core().patch_namespaced_secret(
        secret["metadata"]["name"],
        secret["metadata"]["namespace"],
        {"metadata": {"ownerReferences": [owner]}},
        _content_type=kube.MERGE_PATCH,
    )
