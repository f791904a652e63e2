"""The ssh keys of one job: drawn once, kept in its Secret, never written anywhere else."""

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from horovodjob_operator.domain.names import AUTHORIZED_KEYS, HOST_KEY, KNOWN_HOSTS, PRIVATE_KEY
from horovodjob_operator.start_scripts import SCRIPTS


def _pair() -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def secret_contents() -> Mapping[str, str]:
    """User key, host key and start scripts of a job, by file name."""
    user, user_public = _pair()
    host, host_public = _pair()
    return {
        PRIVATE_KEY: user,
        AUTHORIZED_KEYS: f"{user_public} horovodjob\n",
        HOST_KEY: host,
        KNOWN_HOSTS: f"horovodjob {host_public}\n",
        **SCRIPTS,
    }
