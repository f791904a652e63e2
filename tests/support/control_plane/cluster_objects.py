"""The objects that belong to no namespace: tests that share a control plane leave them as they were."""

from support.api_client import Api

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
    f"{RBAC}/clusterroles",
    f"{RBAC}/clusterrolebindings",
    f"{ADMISSION}/mutatingwebhookconfigurations",
    f"{ADMISSION}/validatingwebhookconfigurations",
    f"{ADMISSION}/validatingadmissionpolicies",
    f"{ADMISSION}/validatingadmissionpolicybindings",
)


def cluster_objects(api: Api) -> set[str]:
    """The objects without a namespace, as `collection/name`."""
    return {f"{path.rpartition('/')[2]}/{item['metadata']['name']}" for path in COLLECTIONS for item in api.items(path)}
