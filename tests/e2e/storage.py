"""Storage accounts of Azure Files as the local cluster has them: real SMB servers behind the driver's name."""

from __future__ import annotations

import secrets
from pathlib import Path

from e2e.access import Object
from localcluster.invocation import invoke
from localcluster.settings import Cluster

SHARE = "myshare"
MOUNT_ROOT = "$(AZ_BATCHAI_JOB_MOUNT_ROOT)"


class StorageAccount:
    """An account with the share `myshare`, and what an administrator does to it."""

    def __init__(self, local: Cluster, *shares: str) -> None:
        self._local = local
        self.name = f"e2e{secrets.token_hex(8)}"
        self.key = self.command("create", *shares)

    def command(self, action: str, *arguments: str) -> str:
        """What a command of `python3 localcluster storage` prints."""
        return invoke(self._local, "storage", action, self.name, *arguments)

    @property
    def directory(self) -> Path:
        """The share as the server has it."""
        return self._local.azure_files / self.name / SHARE

    def write(self, path: str, text: str) -> None:
        """Puts a file on the share, as an upload does."""
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def secret(self, key: str = "") -> Object:
        """The Secret that the driver looks for."""
        values = {"azurestorageaccountname": self.name, "azurestorageaccountkey": key or self.key}
        metadata = {"name": f"azure-storage-account-{self.name}-secret"}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}

    def mounted(self, name: str = SHARE, **fields: object) -> Object:
        """An entry of spec.azureFiles."""
        return {"name": name, "account": self.name, "share": SHARE, **fields}
