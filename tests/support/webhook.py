"""An admission webhook on this machine, which a real API server calls."""

import base64
import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from support.api_client import Api, ApiError, Object
from support.azure_fakes.https import HttpsServer, Request, Response

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
# What a webhook does about an object: the response of its AdmissionReview, or None for the answer 500.
Respond = Callable[[Object], Object | None]


def denies(message: str) -> Respond:
    """A webhook that denies everything, with a code as an API server that fails has it."""
    return lambda _: {"allowed": False, "status": {"code": 500, "message": message}}


def fails(_: Object) -> Object | None:
    """A webhook that answers 500."""
    return None


def is_refused(api: Api, path: str, body: Object) -> bool:
    """Whether an object cannot be created: the API server needs a moment to know a new webhook."""
    try:
        api.create(f"{path}?dryRun=All", body)
    except ApiError:
        return True
    return False


@contextlib.contextmanager
def webhook(api: Api, namespace: str, respond: Respond, *, resource: str = "/v1 pods") -> Iterator[str]:
    """A webhook for what is created in one namespace while the context lasts; its name."""
    name = f"{namespace}.example.com"
    group, version, plural = resource.replace("/", " ").split(" ")

    def answer(request: Request) -> Response:
        review = json.loads(request.body)
        if (found := respond(review["request"])) is None:
            return Response(500, {})
        return Response(200, review | {"response": {"uid": review["request"]["uid"], **found}})

    with tempfile.TemporaryDirectory() as directory, HttpsServer(answer, Path(directory)) as server:
        authority = base64.b64encode(server.certificate.read_bytes()).decode()
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": ["CREATE"]}
        hook = {
            "name": name,
            "clientConfig": {"url": f"{server.url}/", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        api.create(WEBHOOKS, kind | {"metadata": {"name": namespace}, "webhooks": [hook]})
        try:
            yield name
        finally:
            api.delete(f"{WEBHOOKS}/{namespace}")
