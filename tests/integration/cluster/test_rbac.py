"""The rights of the operator's token, as SECURITY.md lists them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.api_client import Api, ApiError, Object, wait_for
from support.control_plane.operator_control_plane import (
    OPERATOR_NAMESPACE,
    OPERATOR_USER,
    make_namespace,
    operator_kubeconfig,
)
from support.job_driver import Job, restricted_pod, submit
from support.operator_process import Operator

Submit = Callable[..., Job]
Refusal = Callable[..., str]

GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{OPERATOR_NAMESPACE}", "system:authenticated"]
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
GRANTED = """
list watch delete             horovodjob.dev/horovodjobs
patch                         horovodjob.dev/horovodjobs/status
get list watch create patch delete deletecollection   /pods
create                        /secrets horovodjob.dev/horovodjobs/secrets horovodjob.dev/horovodjobs/pods
create                        events.k8s.io/events
list watch                    /resourcequotas
get create delete             /services networking.k8s.io/networkpolicies
create                        authentication.k8s.io/tokenreviews authorization.k8s.io/subjectaccessreviews
get list watch create patch delete   kueue.x-k8s.io/workloads
patch                         kueue.x-k8s.io/workloads/status
get                           visibility.kueue.x-k8s.io/localqueues/pendingworkloads
get                           kueue.x-k8s.io/resourceflavors kueue.x-k8s.io/workloadpriorityclasses
get                           scheduling.k8s.io/priorityclasses
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
get create update patch delete        /resourcequotas
update deletecollection               kueue.x-k8s.io/workloads
update                                kueue.x-k8s.io/workloads/status
list create update patch delete       kueue.x-k8s.io/clusterqueues kueue.x-k8s.io/resourceflavors
list create update patch delete       scheduling.k8s.io/priorityclasses
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


@pytest.fixture
def refusal(api: Api, namespace: str) -> Refusal:
    """The error message of a command with the token of the operator, which must fail."""

    def run(*arguments: str, body: Object | None = None) -> str:
        user = ("--as", OPERATOR_USER, *(word for group in GROUPS for word in ("--as-group", group)))
        done = api.kubectl(*user, "-n", namespace, *arguments, stdin=json.dumps(body) if body else "")
        assert done.returncode != 0, done.stdout
        return done.stderr

    return run


def test_a_stolen_token_deletes_nothing_that_belongs_to_no_job(
    submit_job: Submit, refusal: Refusal, api: Api, namespace: str
) -> None:
    paths = {
        "pods": f"/api/v1/namespaces/{namespace}/pods",
        "services": f"/api/v1/namespaces/{namespace}/services",
        "networkpolicies": f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    }
    api.create(paths["pods"], restricted_pod("mine"))
    api.create(paths["services"], {"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 80}]}})
    api.create(paths["networkpolicies"], {"metadata": {"name": "mine"}, "spec": {"podSelector": {}}})
    for resource, path in paths.items():
        assert "no HorovodJob as its controller" in refusal("delete", "--raw", f"{path}/mine"), resource
    assert "no HorovodJob as its controller" in refusal("delete", "--raw", paths["pods"]), "deletecollection"
    assert "only when it is finished" in refusal("delete", "--raw", submit_job().path)


def test_a_stolen_token_can_end_a_job_and_delete_one_with_a_time_to_live(
    api: Api, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    attacked = f"{namespace}-attacked"
    make_namespace(api, attacked)
    job = submit(api, attacked, runPolicy={"ttlSecondsAfterFinished": 3600}).advance_to("Running")
    operator.kill()
    token = Api(operator_kubeconfig(api, tmp_path / "kubeconfig"))
    for status in ({}, {"completionTime": "2026-01-01T00:00:00Z"}):
        token.patch(f"{job.path}/status", {"status": status})
        with pytest.raises(ApiError, match="only when it is finished"):
            token.delete(job.path)
    token.patch(f"{job.path}/status", {"status": {"phase": "Failed"}})
    token.delete(job.path)
    api.delete(f"/api/v1/namespaces/{attacked}")


def test_a_stolen_token_exceeds_no_limit_of_a_job_and_a_copy_of_a_pod_blocks_no_clean_up(
    submit_job: Submit, refusal: Refusal, api: Api, namespace: str
) -> None:
    job = submit_job().advance_to("Running")
    privileged = restricted_pod("bare")
    privileged["metadata"] |= {"ownerReferences": [job.owner_reference]}
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert 'violates PodSecurity "restricted' in refusal("create", "-f", "-", body=privileged)
    annotations = {"kubernetes.io/service-account.name": "default"}
    meta = {"name": f"horovodjob-keys-{job.uid}", "annotations": annotations, "ownerReferences": [job.owner_reference]}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/service-account-token"}
    assert "only Secrets of the type Opaque" in refusal("create", "-f", "-", body=body)
    image = '[{"op": "replace", "path": "/spec/containers/0/image", "value": "evil:1"}]'
    patch = ("patch", "pod", "train-worker-0", "--type=json", "-p")
    assert "may not change the image" in refusal(*patch, image)
    owner = '[{"op": "remove", "path": "/metadata/ownerReferences"}]'
    assert "may not change the owner" in refusal(*patch, owner)
    copied = restricted_pod("mine")
    copied["metadata"]["labels"] = job.pods()["worker-0"]["metadata"]["labels"]
    api.create(job.pods_path, copied)
    label = '{"metadata": {"labels": {"a": "b"}}}'
    assert "no HorovodJob as its controller" in refusal("patch", "pod", "mine", "--type=merge", "-p", label)
    job.end("launcher", 0)
    job.wait("Succeeded")
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})


def test_an_operator_that_the_policy_does_not_limit_says_so_at_its_start(api: Api, tmp_path: Path) -> None:
    account = {"kind": "ServiceAccount", "name": "renamed", "namespace": OPERATOR_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "horovodjob-operator"}
    binding = {"metadata": {"name": "renamed"}, "roleRef": role, "subjects": [account]}
    path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts"
    api.create(path, {"metadata": {"name": "renamed"}})
    api.create(BINDINGS, binding)
    try:
        access = {name: operator_kubeconfig(api, tmp_path / name, name) for name in ("renamed", "horovodjob-operator")}
        operators = {name: Operator(file, tmp_path / f"{name}.log", lease_name=name) for name, file in access.items()}
        said = {name: [line["message"] for line in one.start().new_log_lines()] for name, one in operators.items()}
        for one in operators.values():
            one.kill()
    finally:
        api.delete(f"{BINDINGS}/renamed")
        api.delete(f"{path}/renamed")
    warning = f"no admission policy limits system:serviceaccount:{OPERATOR_NAMESPACE}:renamed"
    assert [warning in "\n".join(lines) for lines in said.values()] == [True, False]
