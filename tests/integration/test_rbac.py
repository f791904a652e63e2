"""The rights of the operator's token, as SECURITY.md lists them."""

from pathlib import Path

import yaml

from api.client import Api
from integration.control_plane import OPERATOR_NAMESPACE, OPERATOR_USER

GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{OPERATOR_NAMESPACE}", "system:authenticated"]
GRANTED = """
list watch delete             horovodjob.dev/horovodjobs
patch                         horovodjob.dev/horovodjobs/status
get list watch create patch delete deletecollection   /pods
create                        /secrets
create                        events.k8s.io/events
get create delete             /services networking.k8s.io/networkpolicies
create                        authentication.k8s.io/tokenreviews
"""
REFUSED = """
get list watch update patch delete deletecollection   /secrets
get create update patch               horovodjob.dev/horovodjobs
create get                            /pods/exec /pods/attach /pods/portforward /pods/log /pods/ephemeralcontainers
create                                /serviceaccounts/token /namespaces /nodes/proxy apps/deployments batch/jobs
get list create update patch delete   rbac.authorization.k8s.io/clusterroles rbac.authorization.k8s.io/rolebindings
update patch delete                   /nodes
list watch update patch               /services networking.k8s.io/networkpolicies
create update patch delete            apiextensions.k8s.io/customresourcedefinitions
create update patch delete            admissionregistration.k8s.io/validatingwebhookconfigurations
get list create                       /configmaps
impersonate                           /users /serviceaccounts
"""


def requests(table: str) -> list[tuple[str, str]]:
    """Each verb and resource of a table."""
    rows = [line.split() for line in table.strip().splitlines()]
    return [(verb, what) for row in rows for what in row if "/" in what for verb in row if "/" not in verb]


def is_allowed(api: Api, namespace: str, verb: str, what: str) -> bool:
    """The result of a SubjectAccessReview for the operator."""
    group, _, rest = what.partition("/")
    resource, _, part = rest.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": part}
    spec = {"user": OPERATOR_USER, "groups": GROUPS, "resourceAttributes": asked}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


def test_the_token_of_the_operator_has_the_documented_rights_and_no_others(api: Api, namespace: str) -> None:
    assert [one for one in requests(GRANTED) if not is_allowed(api, namespace, *one)] == []
    assert [one for one in requests(REFUSED) if is_allowed(api, namespace, *one)] == []


def test_the_operator_cannot_exceed_pod_security(api: Api, namespace: str, operator_access: Path) -> None:
    container = {"name": "a", "image": "a", "securityContext": {"privileged": True}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    done = api.kubectl(
        f"--kubeconfig={operator_access}", "-n", namespace, "create", "-f", "-", stdin=yaml.safe_dump(pod)
    )
    assert 'violates PodSecurity "restricted' in done.stderr
