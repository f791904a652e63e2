"""The stand-in for Azure Files' CSI driver, `file.csi.azure.com`, in the local cluster.

Its program is go/azurefiles, whose main.go lists what differs from the real driver.
"""

from collections.abc import Iterator
from typing import Any

from localcluster.binaries.cache import Binaries
from localcluster.control_plane.client import Client
from localcluster.nodes.pools import nodes
from localcluster.processes import Component
from localcluster.settings import API_PORT, AZURE_FILES, NODE_NAME, Cluster

DRIVER = "file.csi.azure.com"


def driver(cluster: Cluster, binaries: Binaries) -> Component:
    """The stand-in for the driver's part on each node: one process for the kubelets of all."""
    command = (
        str(binaries.path("azurefileplugin")),
        f"--accounts={cluster.azure_files}",
        f"--server=https://{cluster.node_address}:{API_PORT}",
        f"--pki={cluster.pki}",
        *(f"{node.name}={node.kubelet_root}" for node in nodes(cluster)),
    )
    return Component(AZURE_FILES, command, (cluster.pki / f"{AZURE_FILES}.crt",))


def apply_driver(client: Client) -> None:
    """Create or correct the driver's objects."""
    for path, wanted in objects():
        client.apply(path, wanted)


def is_registered(client: Client) -> bool:
    """Whether the kubelet has the driver."""
    found = client.get(f"/apis/storage.k8s.io/v1/csinodes/{NODE_NAME}")
    return found is not None and any(one["name"] == DRIVER for one in found["spec"].get("drivers") or ())


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object with the path that it is applied to: as the real driver is installed, with its right on secrets."""
    group, role = "rbac.authorization.k8s.io", "csi-azurefile-node-secret-role"
    yield (
        f"/apis/storage.k8s.io/v1/csidrivers/{DRIVER}",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": DRIVER},
            "spec": {
                "attachRequired": False,
                "podInfoOnMount": True,
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
                "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "tokenRequests": [{"audience": "api://AzureADTokenExchange", "expirationSeconds": 3600}],
            },
        },
    )
    yield (
        f"/apis/{group}/v1/clusterroles/{role}",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
        },
    )
    yield (
        f"/apis/{group}/v1/clusterrolebindings/{role}",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": AZURE_FILES}],
        },
    )
