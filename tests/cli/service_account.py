"""A user with few rights: a service account of the test's namespace."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from support.api_client import BASE, Api, Object

RBAC = "rbac.authorization.k8s.io"


def account_kubeconfig(api: Api, namespace: str, directory: Path, *cluster_roles: str) -> Path:
    """The kubeconfig of a new service account that has these ClusterRoles in the namespace, and no other right."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(account, {"metadata": {"name": "user"}})
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
    for role in cluster_roles:
        binding: Object = {"metadata": {"name": role.replace(":", "-")}, "subjects": [subject]}
        binding["roleRef"] = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        api.create(f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", binding)
    return token_kubeconfig(api, namespace, "user", directory)


def token_kubeconfig(api: Api, namespace: str, account: str, directory: Path, default: str | None = None) -> Path:
    """The kubeconfig with a token of an account of the namespace, which is its default one unless another is given."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = api.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    kubeconfig = yaml.safe_load(api.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    kubeconfig["contexts"][0]["context"]["namespace"] = default or namespace
    written = directory / f"{account}.kubeconfig"
    written.write_text(yaml.safe_dump(kubeconfig))
    return written


def is_allowed(api: Api, user: str, namespace: str, group: str, resource: str, verb: str) -> bool:
    """What the API server answers about a right now: it learns of changes with a delay."""
    resource, _, part = resource.partition("/")
    right = {"namespace": namespace, "group": group, "resource": resource, "subresource": part, "verb": verb}
    body = {"spec": {"user": user, "resourceAttributes": right}}
    return bool(api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


@contextmanager
def role_for_nodes(api: Api, namespace: str) -> Iterator[None]:
    """The account of the namespace has the ClusterRole of the manifests that reaches nodes."""
    documents = yaml.safe_load_all((BASE / "rbac.yaml").read_text())
    (rules,) = (each["rules"] for each in documents if each["metadata"]["name"] == "horovodjob-nodes")
    name = f"{namespace}-nodes"
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
    api.create(f"/apis/{RBAC}/v1/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    api.create(f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    yield
    api.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{name}")
    api.delete(f"/apis/{RBAC}/v1/clusterroles/{name}")
