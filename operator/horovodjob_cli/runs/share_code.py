"""A directory on a share of Azure Files: files by content in `code/files/<sha256>`, lists in `code/trees/<sha256>`.

A run sends the files that no run before it has sent. Each node makes a directory of its own from the list.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from horovodjob.api.constants import MOUNT_ROOT
from horovodjob.api.storage_account import SECRET_ACCOUNT, SECRET_KEY, files_host, key_secret_name
from horovodjob.azurefiles.credentials import Account, Options, choose_account
from horovodjob.command_line import shell_text
from horovodjob.conversion import secret
from horovodjob_cli.files.file_transfers import progress_bars
from horovodjob_cli.files.job_files import secret_values
from horovodjob_cli.files.share_access import open_share
from horovodjob_cli.runs.directory import CodeFile

Object = dict[str, Any]
FILES, TREES = "code/files", "code/trees"


def tree(files: Sequence[CodeFile]) -> tuple[str, dict[str, Path]]:
    """The list of the files, and their sources by the SHA-256 of their contents."""
    lines, sources = [], {}
    for file in files:
        with file.source.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        lines.append(f"{digest} {'x' if file.is_executable else '-'} {file.path}\n")
        sources[digest] = file.source
    return "".join(lines), sources


def tree_name(listed: str) -> str:
    """The name of the list on the share."""
    return hashlib.sha256(listed.encode()).hexdigest()


def account_of(options: Options) -> Account:
    """The storage account that options or the environment name. Raises FilesError."""
    return choose_account(None, options, os.environ)


def key_secret(options: Options, namespace: str) -> Object | None:
    """The Secret with the key of the account; None if options and environment have no key."""
    account = account_of(options)
    if account.key is None:
        return None
    values = {SECRET_ACCOUNT: account.name, SECRET_KEY: account.key}
    return secret(key_secret_name(account.name), namespace, values)


def mount(share: str, account: Account) -> Object:
    """The share as an entry of spec.azureFiles."""
    entry = {"name": share[:46].rstrip("-"), "account": account.name, "share": share}
    host = account.endpoint.partition("://")[2].partition("/")[0]
    if ".file." in host and host != files_host(account.name):
        entry["server"] = host
    return entry


def unpack_command(entry: Object, listed: str, directory: str) -> str:
    """A shell command that makes the directory from the files on the mounted share."""
    return shell_text(
        f"code={MOUNT_ROOT}/{entry['name']}/code\n"
        "while read -r content mode path; do\n"
        f'    case $path in */*) mkdir -p "{directory}/${{path%/*}}" ;; esac &&\n'
        f'        cp "$code/files/$content" "{directory}/$path" &&\n'
        f'        {{ [ "$mode" != x ] || chmod +x "{directory}/$path"; }} || exit 1\n'
        f'done <"$code/trees/{tree_name(listed)}"'
    )


def send(
    share: str, options: Options, namespace: str, listed: str, sources: Mapping[str, Path], *, quiet: bool
) -> None:
    """Send the files that the share does not have, and then the list. Raises FilesError, OSError."""
    from horovodjob.azurefiles.upload import upload_contents

    name = account_of(options).name
    secret_name = key_secret_name(name)
    store = open_share(
        share, options, account=name, secret_name=secret_name, read_secret=lambda: secret_values(namespace, secret_name)
    )
    with progress_bars(quiet=quiet) as display, tempfile.TemporaryDirectory() as directory:
        upload_contents(store, FILES, sources, display.progress, display.plan)
        path = Path(directory) / "tree"
        path.write_text(listed, encoding="utf-8")
        upload_contents(store, TREES, {tree_name(listed): path})
