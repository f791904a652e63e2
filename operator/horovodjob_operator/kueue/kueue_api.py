"""Requests about Workloads and queues of Kueue: each method sends one."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import OPERATOR_APP_NAME
from horovodjob_operator.kube.requests.api_client import METADATA_ONLY, ApiClient
from horovodjob_operator.kube.requests.object_paths import workloads_path
from horovodjob_operator.kube.requests.writer import MERGE_PATCH, delete_options, merge_patch
from horovodjob_operator.kueue.workload import API_VERSION, KIND, Workload

APPLY_PATCH = "application/apply-patch+yaml"
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
Object = dict[str, Any]


class KueueApi:
    """Reads and writes Workloads; a write returns the Workload as it is then."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def workload(self, namespace: str, name: str) -> Object:
        """The Workload with this name. Raises Gone."""
        return await self._client.request("GET", workloads_path(namespace, name))

    async def create(self, body: Mapping[str, Any]) -> Object:
        """Creates a Workload. Raises AlreadyExists, Refused, NotServed."""
        path = workloads_path(body["metadata"]["namespace"])
        return await self._client.request("POST", path, body, is_creation=True)

    async def patch(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Changes metadata or spec of a Workload. Raises Conflict, Gone, Refused."""
        path = workloads_path(namespace, name)
        return await self._client.request("PATCH", path, patch, content_type=MERGE_PATCH)

    async def replace_status(self, namespace: str, workload: Workload, status: Mapping[str, Any]) -> Object:
        """Replaces the status of this version of a Workload. Raises Conflict if it has changed, Gone, Refused."""
        patch = {"metadata": _version(workload), "status": merge_patch(workload.status, status)}
        path = f"{workloads_path(namespace, workload.name)}/status"
        return await self._client.request("PATCH", path, patch, content_type=MERGE_PATCH)

    async def apply_status(self, namespace: str, workload: Workload, status: Mapping[str, Any]) -> Object:
        """Sets fields of the status, whatever others write at the same time. Raises Gone, Conflict, Refused."""
        metadata = {"name": workload.name, "namespace": namespace, "uid": workload.uid}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status}
        params = {"fieldManager": OPERATOR_APP_NAME, "force": "true"}
        path = f"{workloads_path(namespace, workload.name)}/status"
        return await self._client.request("PATCH", path, body, params=params, content_type=APPLY_PATCH)

    async def delete(self, namespace: str, workload: Workload) -> None:
        """Deletes this version of a Workload. Raises Gone, Conflict if it has changed: it may be held by now."""
        path = workloads_path(namespace, workload.name)
        await self._client.request("DELETE", path, delete_options(_version(workload)), accept=METADATA_ONLY)

    async def flavor(self, name: str) -> Object:
        """The spec of a ResourceFlavor. Raises Gone, Refused."""
        flavor = await self._client.request("GET", f"/apis/{API_VERSION}/resourceflavors/{name}")
        return flavor.get("spec") or {}

    async def priority(self, reference: Mapping[str, str]) -> int:
        """The value of a priority class. Raises Gone, Refused."""
        is_of_kueue = reference["kind"] == "WorkloadPriorityClass"
        api_version, plural = (
            (API_VERSION, "workloadpriorityclasses") if is_of_kueue else ("scheduling.k8s.io/v1", "priorityclasses")
        )
        found = await self._client.request("GET", f"/apis/{api_version}/{plural}/{reference['name']}")
        return int(found["value"])

    async def positions(self, namespace: str, queue: str) -> dict[str, int]:
        """The positions of the Workloads that wait in a LocalQueue, from 1. Raises Gone, Refused, Unavailable."""
        path = f"{VISIBILITY}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
        answer = await self._client.request("GET", path)
        items = answer.get("items") or ()
        return {item["metadata"]["name"]: int(item.get("positionInLocalQueue") or 0) + 1 for item in items}


def _version(workload: Workload) -> dict[str, str]:
    return {"uid": workload.uid, "resourceVersion": str(workload.version)}
