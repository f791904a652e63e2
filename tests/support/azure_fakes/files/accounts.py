"""Storage accounts: their keys, role assignments, and the directory of their shares."""

import base64
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class DataRole(StrEnum):
    """The access to files that a role assignment grants to tokens."""

    READER = "Storage File Data Privileged Reader"
    CONTRIBUTOR = "Storage File Data Privileged Contributor"


def new_key() -> str:
    """An account key: 64 random bytes in base64."""
    return base64.b64encode(secrets.token_bytes(64)).decode()


@dataclass(slots=True)
class Account:
    """A storage account. Each sub-directory of `directory` is a share."""

    name: str
    directory: Path
    keys: list[str] = field(default_factory=lambda: [new_key(), new_key()])
    roles: dict[str, DataRole] = field(default_factory=dict)
    """Role of each object id of Entra."""
    allows_keys: bool = True
    firewalled: bool = False

    @property
    def key(self) -> str:
        """The first of the two keys."""
        return self.keys[0]

    def rotate(self, index: int = 0) -> None:
        """Replace one of the two keys: signatures with the old one are rejected from now on."""
        self.keys[index] = new_key()
