"""Options of a storage account of Azure Files and of its shares."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from horovodjob.azurefiles import hosts
from horovodjob.azurefiles.credentials import Options
from horovodjob_cli.options import with_options

AccountName = Annotated[
    str | None,
    typer.Option(
        "--account-name",
        "--storage-account-name",
        help="Storage account. Default: AZURE_BATCHAI_STORAGE_ACCOUNT, AZURE_STORAGE_ACCOUNT.",
    ),
]
AccountKey = Annotated[
    str | None,
    typer.Option(
        "--account-key",
        "--storage-account-key",
        help="Key of the account; prefer AZURE_BATCHAI_STORAGE_KEY or AZURE_STORAGE_KEY, because process lists show "
        "options.",
    ),
]
SasToken = Annotated[
    str | None, typer.Option("--sas-token", help="Shared access signature; or AZURE_STORAGE_SAS_TOKEN.")
]
ConnectionString = Annotated[
    str | None,
    typer.Option("--connection-string", help="Connection string; or AZURE_STORAGE_CONNECTION_STRING."),
]
Subscription = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Azure subscription of the storage account, for its key. Default: all of yours."),
]
ResourceGroup = Annotated[
    str | None, typer.Option("--resource-group", "-g", metavar="NAME", help="Azure resource group of the account.")
]
StorageHost = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-host",
        metavar="HOST",
        help="Host that may have your credentials although a job names it and Azure does not give it to the account; "
        f"repeatable. Or {hosts.ALLOWED_HOSTS}.",
    ),
]
ShareName = Annotated[str, typer.Option("--share-name", "-s", help="Name of the share.", show_default=False)]


def account_options(
    account_name: AccountName = None,
    account_key: AccountKey = None,
    sas_token: SasToken = None,
    connection_string: ConnectionString = None,
    subscription: Subscription = None,
    resource_group: ResourceGroup = None,
    storage_host: StorageHost = None,
) -> Options:
    """The options with a storage account and its credentials."""
    hosts_ = tuple(storage_host or ())
    return Options(account_name, account_key, sas_token, connection_string, subscription, resource_group, hosts_)


def with_account(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces the parameter `account` of a command with the options of a storage account."""
    added = inspect.signature(account_options, eval_str=True).parameters
    return with_options(function, "account", added, account_options, at_end=True)
