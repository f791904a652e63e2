"""Paths of objects in the API."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import API_VERSION, PLURAL
from horovodjob_operator.domain.queues import workload

PLURALS = {
    "Pod": "pods",
    "Secret": "secrets",
    "Service": "services",
    "NetworkPolicy": "networkpolicies",
    "PodGroup": "podgroups",
    "Workload": "workloads",
}
NAMESPACES_PATH = "/api/v1/namespaces"


def jobs_path(namespace: str = "") -> str:
    """Path of the HorovodJobs of a namespace, or of all namespaces."""
    return f"/apis/{API_VERSION}/{f'namespaces/{namespace}/' if namespace else ''}{PLURAL}"


def pods_path(namespace: str = "") -> str:
    """Path of the pods of a namespace, or of all namespaces."""
    return f"/api/v1/{f'namespaces/{namespace}/' if namespace else ''}pods"


def workloads_path(namespace: str = "", name: str = "") -> str:
    """Path of the Workloads of Kueue in a namespace or in all, or of one of them.

    Kubernetes has a kind with the same name in another group.
    """
    place = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{workload.API_VERSION}/{place}workloads{f'/{name}' if name else ''}"


def collection_path(api_version: str, kind: str, namespace: str) -> str:
    """Path of the objects of a kind in a namespace."""
    root = "/apis" if "/" in api_version else "/api"
    return f"{root}/{api_version}/namespaces/{namespace}/{PLURALS[kind]}"


def object_path(body: Mapping[str, Any]) -> str:
    """Path of an object, given its manifest."""
    metadata = body["metadata"]
    return f"{collection_path(body['apiVersion'], body['kind'], metadata['namespace'])}/{metadata['name']}"
