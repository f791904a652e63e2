"""mountVolumes of Batch AI as azureFiles, volumes and Secrets of a HorovodJob."""

import re
import shlex
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from horovodjob.api.constants import MOUNT_ROOT
from horovodjob.api.storage_account import SECRET_ACCOUNT, SECRET_KEY, files_host, key_secret_name
from horovodjob.batchai.fields import refusal, warning
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


def parse_mount_command(text: str) -> tuple[str, str, list[str]] | None:
    """Type, source and options of an NFS or SMB mount; None for other commands."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    words = words[1:] if words[:1] == ["sudo"] else words
    if not words or words.pop(0).rpartition("/")[2] != "mount":
        return None
    kind, options, rest = "", [], []
    while words:
        word = words.pop(0)
        if word in ("-t", "--types", "-o", "--options") and words:
            value = words.pop(0)
            if word in ("-t", "--types"):
                kind = value
            else:
                options += [option for option in value.split(",") if option]
        else:
            rest.append(word)
    patterns = {"nfs": r"[^\s:/]+:/\S*", "nfs4": r"[^\s:/]+:/\S*", "cifs": r"//[^\s/]+/\S+"}
    if len(rest) != 1 or kind not in patterns or not re.fullmatch(patterns[kind], rest[0]):
        return None
    return kind.removesuffix("4"), rest[0], options


def convert_share(node: Node, options: Options) -> dict[str, Any] | None:
    """Account, share, directory and server of the URL of a mount; None if it cannot be converted."""
    where = node.at("azureFileUrl")
    text = text_with_account(node, "azureFileUrl", options)
    account = text_with_account(node, "accountName", options) if node.has("accountName") else None
    if text is None:
        return None
    url = _split_url(text)
    if url is None:
        node.notes.refuse(where, "must be a URL such as https://account.file.core.windows.net/share/directory")
        return None
    host, (share, *directories), has_query = url
    if has_query:
        node.notes.refuse(where, "has a shared access signature, and a mount needs the account's key: remove it")
    first = host.partition(".")[0]
    if account and account != first and not host.startswith(f"{account}."):
        node.notes.refuse(node.at("accountName"), "is not the account of azureFileUrl: correct one of them")
    if not is_account(node, where, first):
        return None
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", share) or not 3 <= len(share) <= 63:
        node.notes.refuse(
            where, "names a share that cannot exist: it has 3 to 63 lower-case letters, digits and single hyphens"
        )
        return None
    if ".." in directories:
        node.notes.refuse(where, "has .. in its path: name the directory itself")
    entry = {"account": first, "share": share}
    if directories:
        entry["directory"] = "/".join(directories)
    return entry | ({"server": host} if host != files_host(first) else {})


def _split_url(text: str) -> tuple[str, list[str], bool] | None:
    """Host, parts of the path and whether there is a query; None if the URL is not that of a share."""
    try:
        url = urlsplit(text.strip())
        host = (url.hostname or "").lower()
    except ValueError:
        return None
    parts = [unquote(part) for part in url.path.split("/") if part]
    if url.scheme not in ("http", "https") or ".file." not in host or not parts:
        return None
    return host, parts, bool(url.query)
