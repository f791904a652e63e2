"""URLs of Azure file shares in mountVolumes."""

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from horovodjob.api.storage_account import files_host
from horovodjob.batchai.storage_accounts import Options, is_account, text_with_account
from horovodjob.document import Node


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
