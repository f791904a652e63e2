"""An HTTPS server on the loopback interface with a certificate of its own."""

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A response; `body` is sent as JSON, and None as no content."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpsServer:
    """Responds to every request with `answer(request)` until the context ends.

    A client finds it at `url`, without a slash at the end, and trusts it with `REQUESTS_CA_BUNDLE=certificate`.
    """

    def __init__(self, answer: Callable[[Request], Response], directory: Path) -> None:
        self.certificate = directory / "server.pem"
        if not self.certificate.exists():
            write_certificate(self.certificate)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler(answer))
        self._server.daemon_threads = True
        # The handshake runs in the thread of the connection: a client that never starts it blocks no other one.
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def handler(answer: Callable[[Request], Response]) -> type[BaseHTTPRequestHandler]:
    """The class that reads requests and writes what `answer` returns."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            response = answer(Request(self.command, unquote(url.path), query, headers, body))
            content = b"" if response.body is None else json.dumps(response.body).encode()
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if content:
                self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = handle_request

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Logs nothing: tests use `requests` of the fakes."""

    return Handler


def write_certificate(path: Path) -> None:
    """Writes a self-signed certificate for the loopback interface, followed by its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake of Azure")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address(LOOPBACK))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
