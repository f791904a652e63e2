"""mountVolumes of Batch AI as azureFiles, volumes and Secrets of a HorovodJob."""

import re
from dataclasses import dataclass, field
from typing import Any

from horovodjob.api.constants import MOUNT_ROOT
from horovodjob.api.storage_account import SECRET_ACCOUNT, SECRET_KEY, key_secret_name
from horovodjob.batchai.azure_file_shares import convert_share
from horovodjob.batchai.fields import refusal, warning
from horovodjob.batchai.mount_command import parse_mount_command
from horovodjob.batchai.names import resource_name
from horovodjob.batchai.storage_accounts import (
    Accounts,
    Options,
    fill_key,
    is_account,
    note_key,
    text_with_account,
)
from horovodjob.conversion import secret
from horovodjob.document import Node

SHARE_NAME_LENGTH = 46
VOLUME_NAME_LENGTH = 58
NFS_LEVEL = (
    "Pod Security level restricted has no volumes of kind nfs: in such a namespace use a PersistentVolumeClaim instead"
)


@dataclass(slots=True)
class Mounts:
    """The results of the conversion so far."""

    azure_files: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)
    accounts: Accounts = field(default_factory=Accounts)
    other_secrets: dict[str, dict[str, str]] = field(default_factory=dict)

    def secrets(self, namespace: str | None) -> list[dict[str, Any]]:
        """Secrets with values from the document."""
        others = [secret(name, namespace, values) for name, values in self.other_secrets.items()]
        return self.accounts.secrets(namespace) + others


def convert_mounts(volumes: Node | None, options: Options) -> Mounts:
    """All mounts; records mounts that cannot be converted."""
    mounts = Mounts()
    if volumes is None:
        return mounts
    for node in volumes.children("azureFileShares"):
        _azure_files(node, mounts, options)
    for node in volumes.children("azureBlobFileSystems"):
        _blob(node, mounts, options)
    for node in volumes.children("fileServers"):
        _file_server(node, mounts, options)
    for node in volumes.children("unmanagedFileSystems"):
        _unmanaged(node, mounts, options)
    fill_key(mounts.accounts, options)
    for account, key in mounts.accounts.keys.items():
        if key is None and account not in mounts.accounts.in_vaults:
            volumes.notes.warn(
                volumes.path,
                f"the file has no key of the storage account {account}: the job needs the Secret "
                f"{key_secret_name(account)} in its namespace, with {SECRET_ACCOUNT} and {SECRET_KEY}",
            )
    return mounts


def _azure_files(node: Node, mounts: Mounts, options: Options) -> None:
    path, entry = _mount_path(node, mounts), convert_share(node, options)
    if entry is None or path is None:
        return
    note_key(node, mounts.accounts, options, entry["account"])
    name = _unique_name(path, SHARE_NAME_LENGTH, {share["name"] for share in mounts.azure_files})
    if name != path:
        entry["relativeMountPath"] = path
    modes = [(key, node.scalar(key)) for key in ("directoryMode", "fileMode")]
    for key, mode in modes:
        if mode and not re.fullmatch(r"[0-7]{3,5}", mode):
            node.notes.refuse(node.at(key), "must be an octal mode such as 0777")
    given = [f"{'dir' if key == 'directoryMode' else 'file'}_mode={mode}" for key, mode in modes if mode]
    mounts.azure_files.append({"name": name, **entry} | ({"mountOptions": given} if given else {}))


def _blob(node: Node, mounts: Mounts, options: Options) -> None:
    path = _mount_path(node, mounts)
    account = text_with_account(node, "accountName", options)
    container = node.required_text("containerName")
    mount_options = node.text("mountOptions")
    if mount_options:
        node.notes.warn(node.at("mountOptions"), warning(node.at("mountOptions")))
    if account is None or not is_account(node, node.at("accountName"), account):
        return
    note_key(node, mounts.accounts, options, account)
    if path is None or container is None:
        return
    attributes = {
        "containerName": container,
        "secretName": key_secret_name(account),
        "mountOptions": mount_options or "-o allow_other",
    }
    _add_volume(mounts, "blob", path, {"csi": {"driver": "blob.csi.azure.com", "volumeAttributes": attributes}})


def _file_server(node: Node, mounts: Mounts, options: Options) -> None:
    path, server = _mount_path(node, mounts), node.child("fileServer")
    directory = node.text("sourceDirectory") or ""
    given = (node.text("mountOptions") or "").replace("-o", " ").replace(",", " ").split()
    if server is None:
        if not node.has("fileServer"):
            node.notes.refuse(node.at("fileServer"), "is missing: add it")
        return
    identifier = server.required_text("id")
    if identifier is None:
        return
    name = identifier.rstrip("/").rpartition("/")[2]
    address = options.nfs_servers.get(name)
    if address is None:
        node.notes.refuse(server.at("id"), refusal(server.at("id"), name=name))
        return
    host, _, export = address.partition(":/")
    if not host or ":/" not in address:
        node.notes.refuse("--nfs-server", f"{name}={address} must have the form NAME=HOST:/PATH")
        return
    if extra := sorted(set(given) - {"rw", "ro"}):
        where = node.at("mountOptions")
        node.notes.warn(where, warning(where, options=", ".join(extra)))
    if path is not None:
        full = "/".join(part for part in (export.strip("/"), directory.strip("/")) if part)
        _add_nfs(node, mounts, path, host, f"/{full}", read_only="ro" in given)


def _unmanaged(node: Node, mounts: Mounts, options: Options) -> None:
    path, text = _mount_path(node, mounts), node.required_text("mountCommand")
    if text is None:
        return
    mount = parse_mount_command(text)
    where = node.at("mountCommand")
    if mount is None:
        node.notes.refuse(where, refusal(where))
        return
    kind, source, given = mount
    if path is None:
        return
    if kind == "nfs":
        host, _, export = source.partition(":/")
        if extra := sorted(set(given) - {"rw", "ro", "defaults"}):
            node.notes.warn(where, warning(where, options=", ".join(extra)))
        _add_nfs(node, mounts, path, host, f"/{export}", read_only="ro" in given)
        return
    _cifs(node, mounts, path, source, given, options)


def _cifs(node: Node, mounts: Mounts, path: str, source: str, given: list[str], options: Options) -> None:
    """An SMB share, with the user and password of its options in a Secret."""
    pairs = dict(option.partition("=")[::2] for option in given)
    values = {
        key: pairs.pop(name)
        for key, names in (
            ("username", ("username", "user")),
            ("password", ("password", "pass")),
            ("domain", ("domain",)),
        )
        for name in names
        if name in pairs
    }
    name = resource_name(f"{options.job_name}-smb-{path}", 63)
    if {"username", "password"} <= set(values):
        mounts.other_secrets[name] = values
    else:
        node.notes.warn(
            node.at("mountCommand"), f"has no username and password: create the Secret {name} with these two keys"
        )
    if "credentials" in pairs:
        pairs.pop("credentials")
    attributes = {"source": source, "secretName": name}
    if rest := [f"{key}={value}" if value else key for key, value in pairs.items()]:
        attributes["mountOptions"] = ",".join(rest)
    _add_volume(mounts, "smb", path, {"csi": {"driver": "smb.csi.k8s.io", "volumeAttributes": attributes}})


def _add_nfs(node: Node, mounts: Mounts, path: str, server: str, export: str, *, read_only: bool) -> None:
    nfs = {"server": server, "path": export} | ({"readOnly": True} if read_only else {})
    _add_volume(mounts, "nfs", path, {"nfs": nfs})
    node.notes.warn(node.path, NFS_LEVEL)


def _add_volume(mounts: Mounts, prefix: str, path: str, source: dict[str, Any]) -> None:
    name = _unique_name(f"{prefix}-{path}", VOLUME_NAME_LENGTH, {volume["name"] for volume in mounts.volumes})
    mounts.volumes.append({"name": name} | source)
    mounts.volume_mounts.append({"name": name, "mountPath": f"{MOUNT_ROOT}/{path}"})


def _mount_path(node: Node, mounts: Mounts) -> str | None:
    """The relative mount path; refuses one that another mount has."""
    text = node.required_text("relativeMountPath")
    if text is None:
        return None
    where = node.at("relativeMountPath")
    path = "/".join(part for part in text.strip().split("/") if part not in ("", "."))
    if not path or ".." in path.split("/") or "$" in path or ":" in path:
        node.notes.refuse(where, "must be a path below the mount root without .., : and $, such as myshare")
        return None
    if path in mounts.paths:
        node.notes.refuse(where, f"is the path of {mounts.paths[path]} too: choose another")
        return None
    mounts.paths[path] = node.path
    return path


def _unique_name(text: str, length: int, taken: set[str]) -> str:
    try:
        name = resource_name(text, length)
    except ValueError:
        name = "mount"
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name[: length - 4].rstrip('-')}-{number}"
    return candidate
