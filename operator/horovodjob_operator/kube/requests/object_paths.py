"""Paths of objects in the API: of one with this name, or of all of a namespace or of the cluster."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import API_VERSION, PLURAL
from horovodjob_operator.kueue import workload

PLURALS = {
    "Pod": "pods",
    "Secret": "secrets",
    "Service": "services",
    "NetworkPolicy": "networkpolicies",
    "PodGroup": "podgroups",
}
NAMESPACES_PATH = "/api/v1/namespaces"


def jobs_path(namespace: str = "", name: str = "") -> str:
    """Path of HorovodJobs."""
    return _path(API_VERSION, PLURAL, namespace, name)


def pods_path(namespace: str = "", name: str = "") -> str:
    """Path of pods."""
    return _path("v1", "pods", namespace, name)


def node_path(name: str) -> str:
    """Path of a node."""
    return _path("v1", "nodes", name=name)


def resource_quotas_path(namespace: str = "") -> str:
    """Path of ResourceQuotas."""
    return _path("v1", "resourcequotas", namespace)


def workloads_path(namespace: str = "", name: str = "") -> str:
    """Path of Workloads of Kueue; Kubernetes has a kind with the same name in another group."""
    return _path(workload.API_VERSION, "workloads", namespace, name)


def collection_path(api_version: str, kind: str, namespace: str) -> str:
    """Path of the objects of a kind."""
    return _path(api_version, PLURALS[kind], namespace)


def object_path(body: Mapping[str, Any]) -> str:
    """Path of an object, given its manifest."""
    metadata = body["metadata"]
    return _path(body["apiVersion"], PLURALS[body["kind"]], metadata["namespace"], metadata["name"])


def _path(api_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    root = "/apis" if "/" in api_version else "/api"
    place = f"namespaces/{namespace}/" if namespace else ""
    return f"{root}/{api_version}/{place}{plural}{f'/{name}' if name else ''}"
