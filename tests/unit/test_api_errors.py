"""Error responses of the API server, and what the operator makes of them."""

import json
from typing import Any

import pytest

from horovodjob.api.constants import Reason
from horovodjob_operator.errors import AlreadyExists, Conflict, Gone, NotServed, OperatorError, Refused, Unavailable
from horovodjob_operator.kube.requests.error_responses import error_from_response

NAMED: dict[str, Any] = {"details": {"name": "train"}}
TERMINATING: dict[str, Any] = {
    "message": 'pods "train-launcher" is forbidden: unable to create new content in namespace a because it is being '
    "terminated",
    "details": {"causes": [{"reason": "NamespaceTerminating"}]},
}


@pytest.mark.parametrize(
    ("method", "status", "answer", "error"),
    [
        ("POST", 409, {"reason": "AlreadyExists"}, AlreadyExists),
        ("PATCH", 409, {"reason": "Conflict"}, Conflict),
        ("DELETE", 409, {"reason": "Conflict"}, Conflict),
        pytest.param("POST", 409, {"reason": "Conflict"}, Unavailable, id="two creations change a ResourceQuota"),
        ("GET", 404, NAMED, Gone),
        ("GET", 404, {}, NotServed),
        ("POST", 403, TERMINATING, Gone),
        ("POST", 422, {}, Refused),
        ("POST", 500, {}, Unavailable),
        ("POST", 504, {"message": "Timeout: request did not complete within requested timeout"}, Unavailable),
    ],
)
def test_an_error_response_has_a_remedy(
    method: str, status: int, answer: dict[str, Any], error: type[OperatorError]
) -> None:
    found = error_from_response(status, json.dumps(answer).encode(), None, method=method, path="/api/v1/pods")
    assert type(found) is error


# Messages of kube-apiserver 1.36, of which tests/integration/cluster/test_refusals.py provokes most, and of AKS.
MESSAGES: dict[str, tuple[int, str, Reason | None]] = {
    "RBAC": (
        403,
        'pods is forbidden: User "system:serviceaccount:horovodjob-system:horovodjob-operator" cannot create resource '
        '"pods" in API group "" in the namespace "team"',
        Reason.OPERATOR_FORBIDDEN,
    ),
    "owner references": (
        403,
        'pods "train-launcher" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource '
        "you can't set finalizers on: , <nil>",
        Reason.OPERATOR_FORBIDDEN,
    ),
    "quota": (
        403,
        'pods "train-worker-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2',
        Reason.QUOTA_EXCEEDED,
    ),
    "a new quota": (
        403,
        'pods "train-worker-1" is forbidden: status unknown for quota: few, resources: pods',
        Reason.QUOTA_EXCEEDED,
    ),
    "a quota of what the pod does not name": (
        403,
        'pods "train-launcher" is forbidden: failed quota: few: must specify limits.cpu for: launcher',
        Reason.INVALID_SPEC,
    ),
    "Pod Security": (
        403,
        'pods "train-launcher" is forbidden: violates PodSecurity "restricted:latest": host namespaces',
        Reason.ADMISSION_DENIED,
    ),
    "a service account": (
        403,
        'pods "train-launcher" is forbidden: error looking up service account a/nobody: serviceaccount "nobody" not '
        "found",
        Reason.INVALID_SPEC,
    ),
    "a priority class": (
        403,
        'pods "train-launcher" is forbidden: no PriorityClass with name high was found',
        Reason.INVALID_SPEC,
    ),
    "a policy": (
        422,
        "pods \"train-launcher\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        Reason.ADMISSION_DENIED,
    ),
    "a webhook": (403, 'admission webhook "a.example.com" denied the request: no', Reason.ADMISSION_DENIED),
    "a webhook with a code of its own": (
        500,
        'admission webhook "a.example.com" denied the request without explanation',
        Reason.ADMISSION_DENIED,
    ),
    "a webhook that quotes others": (
        403,
        'admission webhook "a.example.com" denied the request: pods is forbidden: User "u" cannot create resource',
        Reason.ADMISSION_DENIED,
    ),
    "a webhook that fails": (
        500,
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post '
        '"https://a.team.svc:443/?timeout=10s": context deadline exceeded',
        None,
    ),
    "a field": (422, 'Pod "train-launcher" is invalid: spec.hostname: Invalid value: "_"', Reason.INVALID_SPEC),
    "an unknown field": (
        400,
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.tolerate"',
        Reason.INVALID_SPEC,
    ),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_a_refusal_is_sorted_by_who_can_mend_it(what: str) -> None:
    status, message, reason = MESSAGES[what]
    found = error_from_response(status, json.dumps({"message": message}).encode(), None, method="POST", path="/")
    assert (found.reason if isinstance(found, Refused) else None) is reason
    assert isinstance(found, Refused if reason else Unavailable)
