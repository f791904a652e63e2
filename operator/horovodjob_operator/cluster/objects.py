"""Writes to the API server: the few that the operator makes, each one request."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from horovodjob.api.constants import ANNOTATION_HOSTS, API_VERSION, GROUP, KIND, PLURAL, VERSION, Gang, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.cluster.connection import METADATA_LIST, METADATA_ONLY, USER_AGENT, Connection
from horovodjob_operator.domain import names
from horovodjob_operator.domain.events import Event
from horovodjob_operator.domain.observed import KubeletEventReason
from horovodjob_operator.domain.resources.pod_group import API_VERSIONS

MERGE_PATCH = "application/merge-patch+json"
DRY_RUN = {"dryRun": "All"}
# A misspelt field of a template is an error for its author, not something to drop in silence.
STRICT = {"fieldValidation": "Strict"}
PODS = "/api/v1/namespaces/{}/pods"
PLURALS = {"Secret": "secrets", "Service": "services", "NetworkPolicy": "networkpolicies", "PodGroup": "podgroups"}


def path_of(api_version: str, kind: str, namespace: str) -> str:
    """Where the objects of a kind are in a namespace."""
    root = "/apis" if "/" in api_version else "/api"
    return f"{root}/{api_version}/namespaces/{namespace}/{PLURALS[kind]}"


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


def status_dict(status: HorovodJobStatus) -> dict[str, Any]:
    """The status as it is stored."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


class Objects:
    """The objects of jobs in the cluster."""

    def __init__(self, connection: Connection, identity: str) -> None:
        self._connection, self._identity = connection, identity

    @property
    def busy(self) -> bool:
        """Whether requests wait for others to be answered."""
        return self._connection.waiting > 0

    async def write_status(self, job: HorovodJob, status: HorovodJobStatus) -> int:
        """Stores the status of this very version of the job; the version that the job has now.

        Raises NameTaken where the job has changed or was made anew in the meantime, Gone where it is deleted.
        """
        namespace, name = job.key
        # A status never written by us has defaults in memory that are not in store: all of it is sent then.
        stored = status_dict(job.status) if job.status.phase else {}
        # The version and not the uid: the API server does not look at the uid when a status is written.
        body = {
            "metadata": {"resourceVersion": job.metadata.resource_version},
            "status": merge_patch(stored, status_dict(status)),
        }
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}/status"
        answer = await self._connection.request("PATCH", path, body, content_type=MERGE_PATCH, accept=METADATA_ONLY)
        return int(answer["metadata"]["resourceVersion"])

    async def create(self, body: Mapping[str, Any], *, dry_run: bool = False) -> None:
        """Creates an object of a job that is not a pod. Raises NameTaken, Refused, NotServed."""
        path = path_of(body["apiVersion"], body["kind"], body["metadata"]["namespace"])
        await self._connection.request("POST", path, body, params=DRY_RUN if dry_run else None, accept=METADATA_ONLY)

    async def create_pod(self, pod: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Creates a pod; its metadata. Raises NameTaken, Refused."""
        path = PODS.format(pod["metadata"]["namespace"])
        return await self._connection.request(
            "POST", path, pod, params=STRICT | (DRY_RUN if dry_run else {}), accept=METADATA_ONLY
        )

    async def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """The pod with this name, whosever it is. Raises Gone."""
        return await self._connection.request("GET", f"{PODS.format(namespace)}/{name}")

    async def partial_object(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object with this kind and name, whosever it is, as its metadata alone. Raises Gone."""
        metadata = body["metadata"]
        path = path_of(body["apiVersion"], body["kind"], metadata["namespace"])
        return await self._connection.request("GET", f"{path}/{metadata['name']}", accept=METADATA_ONLY)

    async def warning(self, namespace: str, pod_uid: str, reason: KubeletEventReason, since: datetime) -> str:
        """The newest that the kubelet has said of the pod for this reason; empty where it has said nothing since."""
        params = {"fieldSelector": f"involvedObject.uid={pod_uid},reason={reason}", "limit": "20"}
        answer = await self._connection.request("GET", f"/api/v1/namespaces/{namespace}/events", params=params)
        # The newest cause, which changes when a user mends the first of two; the kubelet's summary names none.
        moment = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        recent = (event for event in answer["items"] if (_time(event) or moment) >= moment)
        newest: dict[str, Any] = max(recent, key=_names_cause_and_time, default={})
        return str(newest.get("message") or "")

    async def publish_hosts(self, job: HorovodJob, hosts: str) -> None:
        """Tells the launcher its hosts. Raises Gone."""
        await self._patch_launcher(job, {"metadata": {"annotations": {ANNOTATION_HOSTS: hosts}}})

    async def end_launcher(self, job: HorovodJob) -> None:
        """Ends the launcher's containers and keeps the pod with its log: the only way the API has for that."""
        await self._patch_launcher(job, {"spec": {"activeDeadlineSeconds": 1}})

    async def _patch_launcher(self, job: HorovodJob, body: Mapping[str, Any]) -> None:
        path = f"{PODS.format(job.metadata.namespace)}/{names.launcher_name(job)}"
        await self._connection.request("PATCH", path, body, content_type=MERGE_PATCH, accept=METADATA_ONLY)

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes this very pod. Raises Gone where it is gone, NameTaken where another has its name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._connection.request("DELETE", f"{PODS.format(namespace)}/{name}", body, accept=METADATA_ONLY)

    async def delete(self, body: Mapping[str, Any], uid: str) -> None:
        """Deletes the object with this kind, name and uid. Raises Gone, NameTaken, Refused."""
        metadata = body["metadata"]
        path = path_of(body["apiVersion"], body["kind"], metadata["namespace"])
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._connection.request("DELETE", f"{path}/{metadata['name']}", options, accept=METADATA_ONLY)

    async def delete_pods(self, job: HorovodJob, role: Role | None = None) -> None:
        """Deletes the job's pods, or those with one role, in one request."""
        params = {"labelSelector": names.own_pods_selector(job, role)}
        path = PODS.format(job.metadata.namespace)
        await self._connection.request("DELETE", path, params=params, accept=METADATA_LIST)

    async def delete_pod_group(self, job: HorovodJob, kind: Gang) -> None:
        """Deletes the job's own PodGroup, if it has one. Raises Gone, NotServed."""
        params = {"labelSelector": names.own_pods_selector(job)}
        path = path_of(API_VERSIONS[kind], "PodGroup", job.metadata.namespace)
        await self._connection.request("DELETE", path, params=params, accept=METADATA_LIST)

    async def job(self, namespace: str, name: str) -> dict[str, Any]:
        """The HorovodJob with this name. Raises Gone."""
        return await self._connection.request("GET", f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}")

    async def delete_secret(self, namespace: str, name: str) -> None:
        """Deletes a Secret. Raises Gone, Refused."""
        path = f"{path_of('v1', 'Secret', namespace)}/{name}"
        await self._connection.request("DELETE", path, accept=METADATA_ONLY)

    async def delete_job(self, job: HorovodJob) -> None:
        """Deletes this very HorovodJob, and with it what it owns. Raises Gone, NameTaken."""
        namespace, name = job.key
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": job.metadata.uid},
            "propagationPolicy": "Background",
        }
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}"
        await self._connection.request("DELETE", path, body, accept=METADATA_ONLY)

    async def post_event(self, job: HorovodJob, event: Event, at: datetime) -> None:
        """Records an event about the job. Raises NameTaken where it is recorded already, Refused."""
        namespace, name = job.key
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": names.event_name(job, event.identity), "namespace": namespace},
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{GROUP}/{USER_AGENT}",
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
        await self._connection.request("POST", path, body, accept=METADATA_ONLY)


def _names_cause_and_time(event: Mapping[str, Any]) -> tuple[bool, str]:
    """Order of FailedMount events: those that name a cause last, by time."""
    summary = str(event.get("message") or "").startswith("Unable to attach or mount volumes")
    return not summary, _time(event)


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
