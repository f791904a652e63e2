"""A client of the progress server: valid and invalid tokens of a pod, and reports posted with them."""

import base64
import http.client
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from support.api_client import Object, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator

AUDIENCE = "horovodjob.dev/progress"
REPORT: Object = {
    "attempt": 1,
    "epoch": 3,
    "epochs": 25,
    "step": 410,
    "stepsPerEpoch": 1563,
    "progress": 0.13,
    "samplesPerSecond": 5120.0,
    "eta": "2030-01-31T12:00:00Z",
    "metrics": {"loss": 1.1, "val_accuracy": 0.61},
}


def token_of(job: Job, role: str = "worker-0", audience: str = AUDIENCE, seconds: int = 600) -> str:
    """A token bound to a pod of the job, as the kubelet gets it for the pod's volume."""
    pod = job.pods()[role]["metadata"]
    return token_of_pod(job, pod["name"], pod["uid"], audience, seconds)


def token_of_pod(job: Job, name: str, uid: str, audience: str = AUDIENCE, seconds: int = 600) -> str:
    """A token bound to a pod of the namespace."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    spec = {"audiences": [audience], "expirationSeconds": seconds, "boundObjectRef": bound}
    path = f"/api/v1/namespaces/{job.namespace}/serviceaccounts/default/token"
    answer = job.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    return str(answer["status"]["token"])


def expired_token(token: str, control_plane: OperatorControlPlane) -> str:
    """The token as the API server itself would have signed it two hours ago."""
    key = load_pem_private_key((control_plane.directory / "pki" / "sa.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = int(time.time())
    return _signed(token, {"iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}, key)


def forged_token(token: str, **claims: Any) -> str:
    """The token with other claims, signed with a key that is not the API server's."""
    return _signed(token, claims, ec.generate_private_key(ec.SECP256R1()))


def _signed(token: str, claims: dict[str, Any], key: ec.EllipticCurvePrivateKey) -> str:
    parts = (_part(token, 0), _part(token, 1) | claims)
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    numbers = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
    return f"{signed}.{_encoded(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


def _part(token: str, number: int) -> dict[str, Any]:
    part = token.split(".")[number]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def post(operator: Operator, token: str, body: Any = None, *, address: str = "127.0.0.1", **fields: Any) -> int:
    """Status code of the response to a report, 0 without a response. A list of bytes is sent in chunks."""
    connection = http.client.HTTPConnection("127.0.0.1", operator.progress_port, 5, (address, 0))
    data = json.dumps(REPORT | fields) if body is None else iter(body) if isinstance(body, list) else body
    try:
        connection.request("POST", "/progress", data, {"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def post_until_reviewed(operator: Operator, token: str, **fields: Any) -> int:
    """Posts until the operator has reviewed the token: it limits the rate of reviews for a pod."""
    return wait_for("a token review", lambda: code if (code := post(operator, token, **fields)) != 429 else 0)
