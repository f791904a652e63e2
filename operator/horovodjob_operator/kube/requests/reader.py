"""Reads from the API server that the watches do not replace; none is sent in steady state."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from horovodjob_operator.domain.autoscaler import AutoscalerEvent, AutoscalerReason
from horovodjob_operator.domain.foreign_text import clean_text
from horovodjob_operator.domain.pods.observed import KubeletEventReason
from horovodjob_operator.kube.requests.api_client import METADATA_ONLY, ApiClient
from horovodjob_operator.kube.requests.object_paths import node_path, object_path, resource_quotas_path

MAX_CONDITION_CHARACTERS = 200


class Reader:
    """Reads jobs and their objects: each method sends one request."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def object(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The pod with this name, or the metadata of another object with this kind and name. Raises Gone."""
        accept = "application/json" if body["kind"] == "Pod" else METADATA_ONLY
        return await self._client.request("GET", object_path(body), accept=accept)

    async def resource_quotas(self, namespace: str) -> list[dict[str, Any]]:
        """The ResourceQuotas of a namespace. Raises Refused, Unavailable."""
        answer = await self._client.request("GET", resource_quotas_path(namespace))
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """The versions of an API group that the API server serves. Raises NotServed if it serves none."""
        answer = await self._client.request("GET", f"/apis/{group}")
        return tuple(version["version"] for version in answer["versions"])

    async def autoscaler_event(self, namespace: str, pod_uid: str) -> AutoscalerEvent | None:
        """The newest event of an autoscaler about a pod that has no node. Raises Refused, Unavailable."""
        # A field selector compares a field with one value, and the scheduler posts most of the other events.
        params = {"fieldSelector": f"involvedObject.uid={pod_uid},reason!=FailedScheduling", "limit": "20"}
        answer = await self._client.request("GET", f"/api/v1/namespaces/{namespace}/events", params=params)
        reasons = set(AutoscalerReason)
        events = (event for event in answer["items"] if event.get("reason") in reasons and _time(event))
        newest = max(events, key=_time, default=None)
        if newest is None:
            return None
        reason, at = AutoscalerReason(newest["reason"]), datetime.fromisoformat(_time(newest))
        return AutoscalerEvent(reason, clean_text(newest.get("message")), at)

    async def kubelet_message(self, namespace: str, pod_uid: str, reason: KubeletEventReason, since: datetime) -> str:
        """Message of the newest kubelet event of the pod with this reason; empty if there is none since."""
        params = {"fieldSelector": f"involvedObject.uid={pod_uid},reason={reason}", "limit": "20"}
        answer = await self._client.request("GET", f"/api/v1/namespaces/{namespace}/events", params=params)
        earliest = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        recent = (event for event in answer["items"] if (_time(event) or earliest) >= earliest)
        # The newest cause, because it changes when a user corrects the first of two causes.
        newest: dict[str, Any] = max(recent, key=_has_cause_and_time, default={})
        return clean_text(newest.get("message"))

    async def node_conditions(self, name: str) -> tuple[str, ...]:
        """The problems that a node reports: each condition that is True, except Ready. Raises Refused, Unavailable."""
        answer = await self._client.request("GET", node_path(name))
        conditions = (answer.get("status") or {}).get("conditions") or ()
        problems = (each for each in conditions if each.get("status") == "True" and each.get("type") != "Ready")
        return tuple(_condition_text(each) for each in problems)


def _condition_text(condition: Mapping[str, Any]) -> str:
    message = clean_text(condition.get("message") or condition.get("reason"))[:MAX_CONDITION_CHARACTERS]
    return f"{clean_text(condition.get('type'))}{f' ({message})' if message else ''}"


def _has_cause_and_time(event: Mapping[str, Any]) -> tuple[bool, str]:
    """Sort key of kubelet events: summaries, which name no cause, first; then by time."""
    is_summary = str(event.get("message") or "").startswith("Unable to attach or mount volumes")
    return not is_summary, _time(event)


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
