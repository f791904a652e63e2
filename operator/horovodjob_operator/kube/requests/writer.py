"""Writes to the API server: each method sends one request."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from horovodjob.api.constants import (
    ANNOTATION_HOSTS,
    API_VERSION,
    GROUP,
    KIND,
    LABEL_REPLICA_INDEX,
    OPERATOR_APP_NAME,
    Role,
)
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain import names
from horovodjob_operator.domain.events import Event
from horovodjob_operator.kube.requests.api_client import METADATA_LIST, METADATA_ONLY, ApiClient
from horovodjob_operator.kube.requests.object_paths import collection_path, jobs_path, object_path, pods_path

MERGE_PATCH = "application/merge-patch+json"
DRY_RUN = {"dryRun": "All"}
# The author of a template needs an error for a misspelt field, which the API server would otherwise drop.
STRICT = {"fieldValidation": "Strict"}


class Writer:
    """Writes jobs and their objects."""

    def __init__(self, client: ApiClient, identity: str) -> None:
        self._client, self._identity = client, identity

    async def write_status(self, job: HorovodJob, status: HorovodJobStatus) -> int:
        """Writes the status of this version of the job, and returns the new version.

        Raises Conflict if the job has changed or was recreated in the meantime, Gone if it is deleted.
        """
        answer = await self._patch(f"{jobs_path(*job.key)}/status", status_patch(job, status))
        return int(answer["metadata"]["resourceVersion"])

    async def write_conditions(self, job: HorovodJob, conditions: Iterable[Mapping[str, Any]]) -> None:
        """Replaces the conditions of this version of the job, and nothing else of its status. Raises Conflict, Gone."""
        metadata = {"resourceVersion": job.metadata.resource_version}
        patch = {"metadata": metadata, "status": {"conditions": [*conditions]}}
        await self._patch(f"{jobs_path(*job.key)}/status", patch)

    async def create(self, body: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Creates an object of a job, and returns its metadata; after a dry run, the whole object as it is admitted.

        Raises AlreadyExists, Refused, NotServed.
        """
        path = collection_path(body["apiVersion"], body["kind"], body["metadata"]["namespace"])
        params = (STRICT if body["kind"] == "Pod" else {}) | (DRY_RUN if dry_run else {})
        accept = "application/json" if dry_run and body["kind"] == "Pod" else METADATA_ONLY
        return await self._client.request("POST", path, body, params=params, accept=accept, is_creation=True)

    async def publish_hosts(self, job: HorovodJob, hosts: str) -> None:
        """Sets the hosts of the launcher. Raises Gone."""
        patch = {"metadata": {"annotations": {ANNOTATION_HOSTS: hosts}}}
        await self._patch(pods_path(job.metadata.namespace, names.launcher_name(job)), patch)

    async def stop_pod(self, namespace: str, name: str) -> None:
        """Stops the containers of a pod and keeps the pod with its log. Raises Gone.

        The API has no other way: a deleted pod has no log.
        """
        await self._patch(pods_path(namespace, name), {"spec": {"activeDeadlineSeconds": 1}})

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the pod with this UID. Raises Gone if it is deleted, Conflict if another pod has its name."""
        await self._delete(pods_path(namespace, name), uid)

    async def delete(self, body: Mapping[str, Any], uid: str) -> None:
        """Deletes the object with this kind, name and UID. Raises Gone, Conflict, Refused."""
        await self._delete(object_path(body), uid)

    async def delete_pods(
        self, job: HorovodJob, role: Role | None = None, keep: Iterable[int] = (), *, unscheduled: bool = False
    ) -> None:
        """Deletes the pods of the job with one request: those with a role, without some indices, or without a node."""
        params = {"labelSelector": names.own_pods_selector(job, role)}
        if indices := ",".join(map(str, keep)):
            params["labelSelector"] += f",{LABEL_REPLICA_INDEX} notin ({indices})"
        if unscheduled:
            params["fieldSelector"] = "spec.nodeName="
        await self._client.request("DELETE", pods_path(job.metadata.namespace), params=params, accept=METADATA_LIST)

    async def delete_collection(self, job: HorovodJob, api_version: str, kind: str) -> None:
        """Deletes the objects of a kind that have the labels of the job's pods. Raises Gone, NotServed."""
        params = {"labelSelector": names.own_pods_selector(job)}
        path = collection_path(api_version, kind, job.metadata.namespace)
        await self._client.request("DELETE", path, params=params, accept=METADATA_LIST)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the HorovodJob with this UID; Kubernetes deletes what it owns. Raises Gone, Conflict."""
        await self._delete(jobs_path(namespace, name), uid, propagationPolicy="Background")

    async def post_event(self, job: HorovodJob, event: Event, at: datetime) -> None:
        """Creates an event of the job. Raises AlreadyExists if it was created before, Refused."""
        namespace, name = job.key
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": names.event_name(job, at), "namespace": namespace},
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{GROUP}/{OPERATOR_APP_NAME}",
            "reportingInstance": self._identity[:128],
            "action": event.reason,
            "reason": event.reason,
            "type": "Warning" if event.is_warning else "Normal",
            "note": event.note[:1000],
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": namespace,
                "name": name,
                "uid": job.metadata.uid,
                "resourceVersion": job.metadata.resource_version,
            },
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        await self._client.request("POST", path, body, accept=METADATA_ONLY)

    async def _patch(self, path: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        return await self._client.request("PATCH", path, patch, content_type=MERGE_PATCH, accept=METADATA_ONLY)

    async def _delete(self, path: str, uid: str, **options: str) -> None:
        await self._client.request("DELETE", path, delete_options({"uid": uid}, **options), accept=METADATA_ONLY)


def delete_options(preconditions: dict[str, str], **options: str) -> dict[str, Any]:
    """The body of a request that deletes an object only if its `uid` and `resourceVersion` are those given."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions, **options}


def status_patch(job: HorovodJob, status: HorovodJobStatus) -> dict[str, Any]:
    """The merge patch that sets the status, valid for this version of the job only."""
    # Before the first write, defaults of the status exist in memory and not in storage, so all of it is sent.
    stored = status_dict(job.status) if job.status.phase else {}
    return {
        # The resource version and not the UID, which the API server does not compare when it updates a status.
        "metadata": {"resourceVersion": job.metadata.resource_version},
        "status": merge_patch(stored, status_dict(status)),
    }


def status_dict(status: HorovodJobStatus) -> dict[str, Any]:
    """The status as the API server stores it."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from `old` to `new`."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if nested := merge_patch(before, value):
                patch[key] = nested
        elif key not in old or before != value:
            patch[key] = value
    return patch
