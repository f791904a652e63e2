"""Error responses of the API server, and what the operator makes of them."""

import json
from typing import Any

import pytest

from horovodjob_operator.errors import AlreadyExists, Conflict, Gone, NotServed, OperatorError, Refused, Unavailable
from horovodjob_operator.kube.requests.api_client import error_from_response

NAMED: dict[str, Any] = {"details": {"name": "train"}}
TERMINATING: dict[str, Any] = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}


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
    ],
)
def test_an_error_response_has_a_remedy(
    method: str, status: int, answer: dict[str, Any], error: type[OperatorError]
) -> None:
    found = error_from_response(status, json.dumps(answer).encode(), None, method=method, path="/api/v1/pods")
    assert type(found) is error


def test_only_an_exceeded_quota_keeps_a_job_waiting() -> None:
    messages = ('pods "train" is forbidden: exceeded quota: gpus', 'pods "train" is forbidden: no such right')
    found = [
        error_from_response(403, json.dumps({"message": text}).encode(), None, method="POST", path="/")
        for text in messages
    ]
    assert [isinstance(error, Refused) and error.over_quota for error in found] == [True, False]
