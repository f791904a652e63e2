"""Keys of storage accounts, which Azure Resource Manager lists for a sign-in, as for `az storage` and `az batchai`."""

import os
from collections.abc import Iterator
from typing import Any

from horovodjob.client.cluster import aks
from horovodjob.client.errors import ClientError, NotFound

Object = dict[str, Any]
ROLE = "Storage Account Key Operator Service Role"
# It also lets its holder find the account.
FINDER_ROLE = "Reader and Data Access"
SUBSCRIPTION_VARIABLE = "AZURE_SUBSCRIPTION_ID"
MANAGEMENT = "https://management.azure.com"
ACCOUNTS_VERSION, SUBSCRIPTIONS_VERSION = "2023-05-01", "2022-12-01"
TYPE = "providers/Microsoft.Storage/storageAccounts"


def account_key(account: str, subscription: str | None = None, group: str | None = None) -> str:
    """A key of the account, found by its name in the subscriptions of the sign-in. Raises ClientError."""
    from azure.core.exceptions import AzureError, HttpResponseError

    subscription = subscription or os.environ.get(SUBSCRIPTION_VARIABLE)
    where = f"the keys of storage account {account}"
    try:
        with _client() as client:
            identifier = _identifier(client, account, subscription, group)
            try:
                found = _answer(client, "POST", f"{identifier}/listKeys", ACCOUNTS_VERSION)
            except HttpResponseError as error:
                if error.status_code != 403:
                    raise
                raise ClientError(
                    f"your sign-in may not list {where}; request the role: az role assignment create --role '{ROLE}' "
                    f"--assignee <you> --scope {identifier}"
                ) from error
    except AzureError as error:
        raise aks.cli_error(error, where) from error
    return str(next(key["value"] for key in found["keys"] if key["permissions"].upper() == "FULL"))


def _identifier(client: Any, account: str, subscription: str | None, group: str | None) -> str:
    """The resource id of the account. Raises NotFound."""
    if subscription and group:
        return f"/subscriptions/{subscription}/resourceGroups/{group}/{TYPE}/{account}"
    subscriptions = (
        [subscription]
        if subscription
        else [str(each["subscriptionId"]) for each in _items(client, "/subscriptions", SUBSCRIPTIONS_VERSION)]
    )
    for each in subscriptions:
        scope = f"/subscriptions/{each}" + (f"/resourceGroups/{group}" if group else "")
        for found in _items(client, f"{scope}/{TYPE}", ACCOUNTS_VERSION):
            if found["name"] == account:
                return str(found["id"])
    places = (
        f"subscription {subscription}" if subscription else f"the {len(subscriptions)} subscriptions of your sign-in"
    )
    raise NotFound(
        f"your sign-in shows no storage account {account} in {places}; check the name, or request the role "
        f"{FINDER_ROLE} on the account"
    )


def _items(client: Any, path: str, version: str) -> Iterator[Object]:
    """The items of a collection, of all its pages."""
    page = _answer(client, "GET", path, version)
    yield from page["value"]
    while link := page.get("nextLink"):
        page = _answer(client, "GET", link)
        yield from page["value"]


def _answer(client: Any, method: str, path: str, version: str | None = None) -> Object:
    from azure.core.rest import HttpRequest

    parameters = {"api-version": version} if version else None
    response = client.send_request(HttpRequest(method, client.format_url(path), params=parameters))
    response.raise_for_status()
    return dict(response.json())


def _client() -> Any:
    """A client that logs neither requests nor responses, which have the keys."""
    from azure.core.pipeline.policies import HeadersPolicy, RetryPolicy
    from azure.mgmt.core import ARMPipelineClient
    from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

    policies = [
        HeadersPolicy(),
        RetryPolicy(retry_total=4),
        ARMChallengeAuthenticationPolicy(aks.credential(), f"{MANAGEMENT}/.default"),
    ]
    return ARMPipelineClient(aks.endpoint() or MANAGEMENT, policies=policies)
