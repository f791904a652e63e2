"""The ssh keys of a job: generated once, stored in its Secret and nowhere else."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from horovodjob_operator.domain.names import AUTHORIZED_KEYS, HOST_KEY, HOST_KEY_ALIAS, KNOWN_HOSTS, PRIVATE_KEY


def generate_ssh_keys() -> dict[str, str]:
    """A new user key and a new host key, by the names of their files."""
    user, user_public = _generate_key_pair()
    host, host_public = _generate_key_pair()
    return {
        PRIVATE_KEY: user,
        AUTHORIZED_KEYS: f"{user_public} {HOST_KEY_ALIAS}\n",
        HOST_KEY: host,
        KNOWN_HOSTS: f"{HOST_KEY_ALIAS} {host_public}\n",
    }


def _generate_key_pair() -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
