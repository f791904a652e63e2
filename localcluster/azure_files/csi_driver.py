"""The replacement of the CSI driver for Azure Files, `file.csi.azure.com`, in the local cluster.

Its program is in go/azurefiles; main.go lists how it differs from the driver of Azure.
"""

from collections.abc import Iterator
from typing import Any

from localcluster.binaries.cache import Binaries
from localcluster.control_plane.client import Client
from localcluster.nodes.pools import all_nodes
from localcluster.processes import Component
from localcluster.settings import API_PORT, AZURE_FILES, NODE_NAME, Cluster

DRIVER = "file.csi.azure.com"


def driver(cluster: Cluster, binaries: Binaries) -> Component:
    """The node plugin of the driver: one process for the kubelets of all nodes."""
    command = (
        str(binaries.path("azurefileplugin")),
        f"--accounts={cluster.azure_files}",
        f"--server=https://{cluster.node_address}:{API_PORT}",
        f"--pki={cluster.pki}",
        *(f"{node.name}={node.kubelet_root}" for node in all_nodes(cluster)),
    )
    return Component(AZURE_FILES, command, (cluster.pki / f"{AZURE_FILES}.crt",))


def apply_driver(client: Client) -> None:
    """Create or correct the objects of the driver. Raises ClusterError."""
    for path, wanted in objects():
        client.apply(path, wanted)


def is_registered(client: Client) -> bool:
    """Whether the kubelet of the first node has registered the driver."""
    found = client.get(f"/apis/storage.k8s.io/v1/csinodes/{NODE_NAME}")
    return found is not None and any(driver["name"] == DRIVER for driver in found["spec"].get("drivers") or ())


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of the driver with its path in the API; names and permissions are those of the driver of Azure."""
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
