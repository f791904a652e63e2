"""A directory on a share of Azure Files, which the job mounts with the key of the account."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horovodjob.api.storage_account import SECRET_ACCOUNT, SECRET_KEY, files_host, key_secret_name
from horovodjob.azurefiles.credentials import Account, Options, choose_account
from horovodjob.azurefiles.errors import DirectoryNotFound, FileNotFound
from horovodjob.client.files.job_files import secret_values
from horovodjob.client.files.share_access import open_share
from horovodjob.client.jobs import job_creation
from horovodjob.client.messages import Display, Transfer
from horovodjob.client.runs.file_tree import FILES, PLACES, TREES, FileTree
from horovodjob.conversion import secret

if TYPE_CHECKING:
    from horovodjob.azurefiles.share import Share

Object = dict[str, Any]


def account_of(options: Options) -> Account:
    """The storage account that options or the environment name. Raises FilesError."""
    return choose_account(None, options, os.environ)


def key_secret(options: Options, namespace: str) -> Object | None:
    """The Secret with the key of the account; None if neither options, environment nor sign-in have a key."""
    account = account_of(options)
    key = account.key or (None if account.sas else job_creation.find_key(account.name, namespace))
    if key is None:
        return None
    values = {SECRET_ACCOUNT: account.name, SECRET_KEY: key}
    return secret(key_secret_name(account.name), namespace, values)


def mount(share: str, account: Account) -> Object:
    """The share as an entry of spec.azureFiles."""
    entry = {"name": share[:46].rstrip("-"), "account": account.name, "share": share}
    host = account.endpoint.partition("://")[2].partition("/")[0]
    if ".file." in host and host != files_host(account.name):
        entry["server"] = host
    return entry


def send(share: str, options: Options, namespace: str, tree: FileTree, display: Display) -> None:
    """Send the files that the share does not have, and then the list. Raises FilesError, OSError."""
    name = account_of(options).name
    secret_name = key_secret_name(name)
    store = open_share(
        share, options, secret_name=secret_name, read_secret=lambda: secret_values(namespace, secret_name)
    )
    with display.transfer() as transfer:
        send_tree(store, tree, transfer)


def send_tree(share: "Share", tree: FileTree, transfer: Transfer) -> None:
    """Send the missing files, then the places of all, and last the list. Raises FilesError, OSError."""
    from horovodjob.azurefiles.upload import upload_contents

    directories = upload_contents(share, FILES, tree.sources, transfer.progress, transfer.plan)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tree"
        if places := tree.places(directories).encode():
            path.write_bytes(places)
            _send_places(share, path, f"{PLACES}/{tree.name}")
        path.write_bytes(tree.listed.encode())  # as text, Windows would end its lines with \r\n
        upload_contents(share, TREES, {tree.name: path})


def _send_places(share: "Share", source: Path, path: str) -> None:
    from horovodjob.azurefiles.upload import upload_file

    size = source.stat().st_size
    try:
        if share.read(path, 0, size + 1).data == source.read_bytes():
            return
    except DirectoryNotFound:
        share.create_directory(PLACES)
    except FileNotFound:
        pass
    upload_file(share, source, path)
