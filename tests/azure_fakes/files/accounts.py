"""Storage accounts: their keys, who may use them, and the directory that holds their shares."""

import base64
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class DataRole(StrEnum):
    """What a role assignment lets a bearer of tokens do with files."""

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
        """Replace one of the two keys: what was signed with the old one is refused from now on."""
        self.keys[index] = new_key()
