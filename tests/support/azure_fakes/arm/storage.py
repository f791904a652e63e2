"""Storage accounts of Azure Resource Manager, and their keys."""

import re
from dataclasses import dataclass
from typing import Any

from support.azure_fakes.arm.errors import not_authorized

TYPE = "Microsoft.Storage/storageAccounts"
READERS = ("Reader", "Reader and Data Access")
KEY_READERS = ("Storage Account Key Operator Service Role", "Reader and Data Access")
# Subscriptions, the accounts of one or of a resource group in it, and the keys of one account.
ACCOUNTS = re.compile(
    r"/subscriptions(/(?P<subscription>[^/]+)(/resourcegroups/(?P<group>[^/]+))?/providers/microsoft\.storage"
    r"/storageaccounts(/(?P<account>[^/]+)/listkeys)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class StorageAccount:
    """An account with its two keys."""

    subscription: str
    group: str
    name: str
    key: str
    other_key: str = "b3RoZXI="

    def body(self) -> dict[str, Any]:
        """The account in a collection."""
        scope = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"
        identity = {"id": f"{scope}/providers/{TYPE}/{self.name}", "name": self.name, "type": TYPE}
        return {**identity, "location": "eastus"}

    def keys_body(self) -> dict[str, Any]:
        """The response of listKeys."""
        keys = (("key1", self.key), ("key2", self.other_key))
        return {"keys": [{"keyName": name, "value": value, "permissions": "FULL"} for name, value in keys]}


def storage_answer(
    accounts: list[StorageAccount], found: re.Match[str], principal: str, role: str | None
) -> list[dict[str, Any]] | dict[str, Any]:
    """The collection that was requested, with what the caller may read, or the keys. Raises ArmError."""
    if not found["subscription"]:
        known = sorted({each.subscription for each in accounts}) if role else []
        return [{"id": f"/subscriptions/{each}", "subscriptionId": each} for each in known]
    inside = _selected(accounts, found)
    if not found["account"]:
        return [each.body() for each in inside if role in READERS]
    if role not in KEY_READERS:
        raise not_authorized(principal, f"{TYPE}/listKeys/action", found[0].rpartition("/")[0])
    return inside[0].keys_body()


def _selected(accounts: list[StorageAccount], found: re.Match[str]) -> list[StorageAccount]:
    """The accounts of a request; identifiers are case-insensitive."""
    names = found["subscription"], found["group"], found["account"]
    return [
        each
        for each in accounts
        for own in [(each.subscription, each.group, each.name)]
        if all(name is None or name.lower() == part.lower() for name, part in zip(names, own, strict=True))
    ]
