"""The metrics over HTTPS: with a self-signed certificate, and with that of a directory, which is renewed."""

import asyncio
import http.client
import logging
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from horovodjob_operator.errors import OperatorError
from horovodjob_operator.servers.health import HealthServer
from horovodjob_operator.servers.tls import TlsPort, tls_context
from localcluster.control_plane.pki import Certificate, make_authority, make_certificate
from localcluster.control_plane.standalone import free_ports

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WAIT_SECONDS = 60
NAME = "horovodjob-metrics.horovodjob-system.svc"
FILES = {"tls.crt": "operator.crt", "tls.key": "operator.key"}


@asynccontextmanager
async def server(directory: str = "") -> AsyncIterator[tuple[int, int]]:
    """The ports of a server without and with TLS."""
    registry = CollectorRegistry()
    Gauge("horovodjob_of_test", "", registry=registry)
    port, tls_port = free_ports(2)
    running = HealthServer(
        port,
        unhealthy=lambda: "",
        unready=lambda: "",
        registry=registry,
        authorize=None,
        tls=TlsPort(tls_port, tls_context(directory, NOW)),
    )
    await running.start()
    yield port, tls_port
    await running.cleanup()


async def get(port: int, path: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and text of a response, over TLS with a context."""

    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        if context:
            raw = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
            connection.sock = context.wrap_socket(raw, server_hostname=NAME)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    return await asyncio.to_thread(ask)


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def issue(directory: Path, authority: str) -> ssl.SSLContext:
    """Writes the certificate of a new authority as the files of a Secret; the context of a client that trusts it."""
    issued = directory / authority
    issued.mkdir()
    make_authority(issued, "ca", authority)
    make_certificate(issued, Certificate("operator", "/CN=operator", server=True, addresses=(f"DNS:{NAME}",)))
    for file, source in FILES.items():
        shutil.copy(issued / source, directory / file)
    return ssl.create_default_context(cafile=issued / "ca.crt")


async def test_metrics_are_served_over_https_only_and_probes_without() -> None:
    async with server() as (port, tls_port):
        assert await get(port, "/healthz") == (200, "ok\n")
        assert await get(port, "/metrics") == (404, f"/metrics is served over HTTPS, on port {tls_port}\n")
        status, text = await get(tls_port, "/metrics", unverified())
        assert (status, "horovodjob_of_test 0.0" in text) == (200, True)
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(tls_port, "/metrics", ssl.create_default_context())


async def test_a_renewed_certificate_is_used_and_after_a_renewal_that_fails_the_previous_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = issue(tmp_path, "first")
    async with server(str(tmp_path)) as (_, tls_port):
        (tmp_path / "tls.key").write_text("half a k")
        with caplog.at_level(logging.WARNING, logger="horovodjob"):
            assert [(await get(tls_port, "/metrics", first))[0] for _ in range(2)] == [200, 200]
        (line,) = caplog.messages
        assert f"{tmp_path} has no valid TLS certificate in tls.crt with its key in tls.key" in line
        second = issue(tmp_path, "second")
        assert (await get(tls_port, "/metrics", second))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(tls_port, "/metrics", first)


def test_a_directory_without_a_valid_certificate_is_an_error_with_its_name(tmp_path: Path) -> None:
    sentence = f"{tmp_path} has no valid TLS certificate in tls.crt with its key in tls.key"
    with pytest.raises(OperatorError, match=sentence):
        tls_context(str(tmp_path), NOW)
    issue(tmp_path, "first")
    (tmp_path / "tls.crt").write_text("not a certificate")
    with pytest.raises(OperatorError, match=sentence):
        tls_context(str(tmp_path), NOW)
