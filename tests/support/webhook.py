"""An admission webhook on this machine, which a real API server calls."""

import base64
import contextlib
import http.server
import ipaddress
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from support.api_client import Api, Object

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
# What a webhook does about an object: the response of its AdmissionReview, or None for the answer 500.
Response = Callable[[Object], Object | None]


def denies(message: str, code: int = 403) -> Response:
    """A webhook that denies everything."""
    return lambda _: {"allowed": False, "status": {"code": code, "message": message}}


def is_slow(seconds: float) -> Response:
    """A webhook that allows everything after a time."""

    def respond(_: Object) -> Object:
        time.sleep(seconds)
        return {"allowed": True}

    return respond


def fails(_: Object) -> Object | None:
    """A webhook that answers 500."""
    return None


@contextlib.contextmanager
def webhook(api: Api, namespace: str, response: Response, *, timeout_seconds: int = 10) -> Iterator[str]:
    """A webhook for the pods of one namespace while the context lasts; its name."""
    name = f"{namespace}.example.com"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(response))
    server.daemon_threads = True
    with tempfile.TemporaryDirectory() as directory:
        certificate = Path(directory, "certificate.pem")
        authority = _certificate()
        certificate.write_bytes(authority[0] + authority[1])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = {
        "name": name,
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(authority[0]).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": timeout_seconds,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    api.create(WEBHOOKS, kind | {"metadata": {"name": namespace}, "webhooks": [hook]})
    try:
        yield name
    finally:
        api.delete(f"{WEBHOOKS}/{namespace}")
        server.shutdown()
        server.server_close()


def _handler(response: Response) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = response(review["request"])
            body = json.dumps(review | {"response": {"uid": review["request"]["uid"], **(answer or {})}}).encode()
            with contextlib.suppress(OSError):  # The API server does not wait for longer than its timeout.
                self.send_response(500 if answer is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    return Handler


def _certificate() -> tuple[bytes, bytes]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")]), datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=12))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), private
