"""Storage accounts of Azure Files on the local cluster: real SMB servers behind the name of the CSI driver."""

from __future__ import annotations

import secrets
from pathlib import Path

from localcluster.command_line import invoke
from localcluster.settings import Cluster
from support.api_client import Object

SHARE = "myshare"
MOUNT_ROOT = "$(AZ_BATCHAI_JOB_MOUNT_ROOT)"


class StorageAccount:
    """An account with the share `myshare`, and the actions of its administrator."""

    def __init__(self, local: Cluster, *shares: str) -> None:
        self._local = local
        self.name = f"e2e{secrets.token_hex(8)}"
        self.key = self.command("create", *shares)

    def command(self, action: str, *arguments: str) -> str:
        """The output of a command of `python3 localcluster storage`."""
        return invoke(self._local, "storage", action, self.name, *arguments)

    @property
    def directory(self) -> Path:
        """Directory of the share on the server."""
        return self._local.azure_files / self.name / SHARE

    def write(self, path: str, text: str) -> None:
        """Writes a file to the share, as an upload does."""
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def secret(self, key: str = "") -> Object:
        """The Secret that the CSI driver reads."""
        values = {"azurestorageaccountname": self.name, "azurestorageaccountkey": key or self.key}
        metadata = {"name": f"azure-storage-account-{self.name}-secret"}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}

    def mounted(self, name: str = SHARE, **fields: object) -> Object:
        """An entry of spec.azureFiles."""
        return {"name": name, "account": self.name, "share": SHARE, **fields}
