"""The TLS certificate of the metrics: that of a directory, such as a mounted Secret, or a self-signed one."""

import logging
import os
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from horovodjob.api.constants import OPERATOR_APP_NAME
from horovodjob_operator.errors import OperatorError

CERTIFICATE, KEY = "tls.crt", "tls.key"
# Each start of the process makes another one, and no client can verify it.
SELF_SIGNED_TIME = timedelta(days=3650)
log = logging.getLogger("horovodjob")


@dataclass(frozen=True, slots=True)
class TlsPort:
    """A port, and the TLS context of its connections."""

    number: int
    context: ssl.SSLContext


def tls_context(directory: str, now: datetime) -> ssl.SSLContext:
    """The context of a server with the certificate of a directory, or without one with a self-signed certificate.

    Raises OperatorError if the directory has no valid certificate with its key.
    """
    return RenewedCertificate(Path(directory)).context if directory else _self_signed(now)


class RenewedCertificate:
    """The certificate in a directory, which is read again when its files change."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._files = directory, (directory / CERTIFICATE, directory / KEY)
        try:
            self._version = self._read_version()
            self._current = self.context = _load(*self._files)
        except OSError as error:
            raise OperatorError(_problem(directory, error)) from None
        self.context.sni_callback = self._select

    def _select(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Chooses the certificate of a new connection, also of one without a server name."""
        try:
            if (version := self._read_version()) != self._version:
                self._version = version
                self._current = _load(*self._files)
        except OSError as error:
            log.warning("%s; the previous one remains in use", _problem(self._directory, error))
        connection.context = self._current

    def _read_version(self) -> list[tuple[int, int]]:
        """Changes when a file does. Raises OSError."""
        return [(each.st_ino, each.st_mtime_ns) for each in map(Path.stat, self._files)]


def _problem(directory: Path, error: OSError) -> str:
    return f"{directory} has no valid TLS certificate in {CERTIFICATE} with its key in {KEY}: {error}"


def _load(certificate: Path, key: Path) -> ssl.SSLContext:
    """A context with the certificate and the key in the files. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key, password="")  # OpenSSL would ask for it on the terminal.
    return context


def _self_signed(now: datetime) -> ssl.SSLContext:
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, OPERATOR_APP_NAME)])
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + SELF_SIGNED_TIME)
        .sign(key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    # OpenSSL reads files only, and the key must not be in one.
    with os.fdopen(os.memfd_create(OPERATOR_APP_NAME), "wb") as memory:
        memory.write(pem)
        memory.flush()
        path = Path(f"/proc/self/fd/{memory.fileno()}")
        return _load(path, path)
