"""Injected sidecars: they never keep a finished job running."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from e2e.access import wait_for
from e2e.namespace import RESTRICTED, Namespace

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SERVER = """
import base64, http.server, json, os, ssl, sys

class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = [{"op": "add", "path": "/spec/containers/-", "value": json.loads(sys.argv[1])}]
        coded = base64.b64encode(json.dumps(patch).encode()).decode()
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": coded}
        body = json.dumps(review | {"response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("", 8443), Webhook)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def _certificate(name: str) -> tuple[str, str]:
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=12))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM).decode(), private.decode()


@pytest.fixture
def webhook(namespace: Namespace) -> Iterator[None]:
    """A webhook that adds a container to each pod of a job in the namespace."""
    certificate, key = _certificate(f"webhook.{namespace.name}.svc")
    sidecar = {
        "name": "injected",
        "image": namespace.image,
        "command": ["sh", "-c", "trap exit TERM; while :; do sleep 0.2; done"],
        "securityContext": RESTRICTED,
    }
    server = {
        "name": "webhook",
        "image": namespace.image,
        "command": ["python3", "-c", SERVER, json.dumps(sidecar)],
        "ports": [{"containerPort": 8443}],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    }
    volumes = [{"name": "tls", "secret": {"secretName": "webhook"}}]
    labels = {"app": "webhook"}
    metadata = {"name": "webhook", "namespace": namespace.name}
    tls = {"tls.crt": certificate, "tls.key": key}
    ports = [{"port": 443, "targetPort": 8443}]
    namespace.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "stringData": tls},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": ports}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata | {"labels": labels},
            "spec": {"containers": [server], "volumes": volumes, "terminationGracePeriodSeconds": 1},
        },
    )
    namespace.kubectl("wait", "-n", namespace.name, "--for=condition=Ready", "pod/webhook", "--timeout=300s")
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    service = {"name": "webhook", "namespace": namespace.name}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    hook = {
        "name": "sidecars.example.com",
        "clientConfig": {"service": service, "caBundle": base64.b64encode(certificate.encode()).decode()},
        "rules": [rule],
        "namespaceSelector": selector,
        "objectSelector": {"matchExpressions": [{"key": "horovodjob.dev/job", "operator": "Exists"}]},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 30,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    namespace.api.request("POST", WEBHOOKS, kind | {"metadata": {"name": namespace.name}, "webhooks": [hook]})
    yield
    namespace.api.request("DELETE", f"{WEBHOOKS}/{namespace.name}")


@pytest.mark.usefixtures("webhook")
def test_a_job_finishes_with_any_sidecar_that_a_webhook_injects(namespace: Namespace) -> None:
    worker = {"replicas": 2}
    namespace.apply(
        namespace.job("good", "echo done", worker=worker),
        namespace.job("bad", "exit 3", worker=worker, runPolicy={"backoffLimit": 0}),
    )
    assert namespace.wait_phase("good", "Succeeded")["exitCode"] == 0
    assert namespace.wait_phase("bad", "Failed")["exitCode"] == 3
    for job in ("good", "bad"):
        pods = namespace.pods_ever(job)
        assert len(pods) == 3
        assert all(pod["spec"]["containers"][-1]["name"] == "injected" for pod in pods)

        def ended(job: str = job) -> bool:
            left = namespace.pods(job)
            return set(left) == {f"{job}-launcher"} and left[f"{job}-launcher"]["status"]["phase"] == "Failed"

        wait_for(f"the sidecars of {job} to end", ended)
    assert namespace.output("good") == ["done", "done"]


def _pod_with(*containers: dict[str, Any], native: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A template with more containers, and with native sidecars."""
    return {"template": {"spec": {"containers": [*containers], "initContainers": [*native]}}}


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_job_starts_prepares_and_succeeds_although_its_sidecars_end(namespace: Namespace, exit_code: int) -> None:
    common: dict[str, Any] = {"image": namespace.image, "securityContext": RESTRICTED}
    short = common | {"name": "short", "command": ["sh", "-c", f"sleep 1; exit {exit_code}"]}
    native = common | {"name": "native", "command": ["sleep", "10000"], "restartPolicy": "Always"}
    pods = _pod_with(short, native=(native,))
    job = namespace.job(
        "short",
        "sleep 5; echo done",
        worker={"replicas": 2} | pods,
        launcher=pods,
        preparation={"command": "sleep 3"},
        runPolicy={"backoffLimit": 0},
    )
    namespace.apply(job)
    namespace.wait_phase("short", "Running")
    status = namespace.wait_phase("short", "Succeeded")
    assert (status["exitCode"], status["attempt"], status.get("errors", [])) == (0, 1, [])
    assert namespace.output("short") == ["done", "done"]
