"""What a caller adds to job.json or chooses in place of what it says, such as by options of `hvj job create`."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import PodSecurity
from horovodjob.api.storage_account import files_host
from horovodjob.batchai.storage_accounts import ACCOUNT_PLACEHOLDER, KEY_PLACEHOLDER


@dataclass(frozen=True, slots=True)
class Choices:
    """What the caller adds to a job.json, or chooses in place of what it says."""

    experiment: str | None = None
    pool: str | None = None
    image: str | None = None
    gpus: int | None = None
    pod_security: PodSecurity | None = None
    """By default, the image and the preparation decide it."""
    as_worker: bool | None = None
    """launcher.asWorker; by default, the preparation decides it."""
    storage_account: str | None = None
    storage_key: str | None = None
    nfs_servers: Mapping[str, str] | None = None
    """`host:/path` by the name of a file server of Batch AI."""
    find_key: Callable[[str], str | None] = lambda account: None
    """The key of an account for which neither the document nor `storage_key` has one."""


@dataclass(frozen=True, slots=True)
class CommandLineMounts:
    """A share, a blob container and a file server, with their paths below the mount root."""

    share: str | None
    share_path: str
    container: str | None
    container_path: str
    file_server: str | None
    file_server_path: str

    def volumes(self, *, has_key: bool) -> dict[str, dict[str, Any]]:
        """The entry of each list of `mountVolumes`."""
        account = {"accountName": ACCOUNT_PLACEHOLDER} | (
            {"credentials": {"accountKey": KEY_PLACEHOLDER}} if has_key else {}
        )
        volumes: dict[str, dict[str, Any]] = {}
        if self.share:
            url = f"https://{files_host(ACCOUNT_PLACEHOLDER)}/{self.share}"
            volumes["azureFileShares"] = {**account, "azureFileUrl": url, "relativeMountPath": self.share_path}
        if self.container:
            names = {"containerName": self.container, "relativeMountPath": self.container_path}
            volumes["azureBlobFileSystems"] = {**account, **names}
        if self.file_server:
            server = {"fileServer": {"id": self.file_server}, "relativeMountPath": self.file_server_path}
            volumes["fileServers"] = server
        return volumes


def with_mounts(document: dict[str, Any], mounts: CommandLineMounts, *, has_key: bool) -> dict[str, Any]:
    """A job.json with these additional mounts; the conversion refuses a list of the wrong type."""
    document = copy.deepcopy(document)
    wrapped = document.get("properties")
    properties = wrapped if isinstance(wrapped, dict) else document
    present = properties.get("mountVolumes")
    lists = properties["mountVolumes"] = {} if present is None else present
    if isinstance(lists, dict):
        for kind, volume in mounts.volumes(has_key=has_key).items():
            if isinstance(own := lists.get(kind) or [], list):
                lists[kind] = [*own, volume]
    return document
