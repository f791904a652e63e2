"""Storage accounts of a job: their names and keys, from the document, the caller or a key vault."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horovodjob.api.storage_account import SECRET_ACCOUNT, SECRET_KEY, key_secret_name
from horovodjob.batchai.fields import warning
from horovodjob.conversion import secret
from horovodjob.document import Node

ACCOUNT_PLACEHOLDER = "<AZURE_BATCHAI_STORAGE_ACCOUNT>"
KEY_PLACEHOLDER = "<AZURE_BATCHAI_STORAGE_KEY>"


@dataclass(frozen=True, slots=True)
class Options:
    """Storage options of the caller."""

    job_name: str
    account: str | None
    key: str | None
    nfs_servers: Mapping[str, str]
    find_key: Callable[[str], str | None] = lambda account: None


@dataclass(slots=True)
class Accounts:
    """The accounts of the job, with their keys if known."""

    keys: dict[str, str | None] = field(default_factory=dict)
    in_vaults: set[str] = field(default_factory=set)

    def secrets(self, namespace: str | None) -> list[dict[str, Any]]:
        """A Secret for each account with a known key."""
        return [
            secret(
                key_secret_name(account),
                namespace,
                {SECRET_ACCOUNT: account, SECRET_KEY: key},
            )
            for account, key in self.keys.items()
            if key is not None
        ]


def fill_key(accounts: Accounts, options: Options) -> None:
    """Assign the caller's key to the account that it names, or to the only account, and find other missing keys."""
    only = next(iter(accounts.keys)) if len(accounts.keys) == 1 else None
    account = options.account or only
    if options.key and account in accounts.keys and account not in accounts.in_vaults:
        accounts.keys[account] = accounts.keys[account] or options.key
    for name, key in accounts.keys.items():
        if key is None and name not in accounts.in_vaults:
            accounts.keys[name] = options.find_key(name)


def text_with_account(node: Node, key: str, options: Options) -> str | None:
    """A text in which the placeholder of the storage account is replaced."""
    text = node.required_text(key)
    if text is None or ACCOUNT_PLACEHOLDER not in text:
        return text
    if not options.account:
        node.notes.refuse(
            node.at(key),
            f"has the placeholder {ACCOUNT_PLACEHOLDER}: give the account's name with --storage-account-name or in "
            "the environment variable AZURE_BATCHAI_STORAGE_ACCOUNT",
        )
        return None
    return text.replace(ACCOUNT_PLACEHOLDER, options.account)


def is_account(node: Node, where: str, account: str) -> bool:
    """Whether the name is valid for a storage account; records an error if not."""
    if re.fullmatch(r"[a-z0-9]{3,24}", account):
        return True
    node.notes.refuse(where, "names a storage account that cannot exist: it has 3 to 24 lower-case letters and digits")
    return False


def note_key(node: Node, accounts: Accounts, options: Options, account: str) -> None:
    """Records the account's key, if the document or the caller has it."""
    credentials = node.child("credentials")
    key = _given_key(credentials, accounts, options, account) if credentials is not None else None
    known = accounts.keys.get(account)
    if key is not None and known not in (None, key):
        where = credentials.path if credentials is not None else node.path
        node.notes.refuse(where, f"is another key of the account {account} than an earlier one: remove one of them")
    accounts.keys[account] = known or key


def _given_key(credentials: Node, accounts: Accounts, options: Options, account: str) -> str | None:
    reference, key = credentials.child("accountKeySecretReference"), credentials.text("accountKey")
    where = credentials.at("accountKey")
    if reference is not None:
        if key is not None:
            credentials.notes.refuse(credentials.path, "has a key and a reference to a key vault: remove one of them")
        accounts.in_vaults.add(account)
        url = reference.required_text("secretUrl")
        credentials.notes.warn(
            reference.path,
            warning(reference.at("secretUrl"), secret=key_secret_name(account), url=url),
        )
        return None
    if key is None or KEY_PLACEHOLDER not in key:
        return key
    found = options.key or options.find_key(account)
    if not found:
        credentials.notes.refuse(
            where,
            f"has the placeholder {KEY_PLACEHOLDER}: give the account's key with --storage-account-key or in the "
            "environment variable AZURE_BATCHAI_STORAGE_KEY",
        )
        return None
    return found
