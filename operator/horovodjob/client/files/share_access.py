"""Access to shares of Azure Files. The SDK is imported when a share is opened.

The image of the dashboard has this module, and not what the command line prints with.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from horovodjob.azurefiles.credentials import Options, choose_account
from horovodjob.client.errors import ClientError

if TYPE_CHECKING:
    from horovodjob.azurefiles.share import Share


def open_share(
    share: str,
    options: Options,
    *,
    account: str | None = None,
    server: str = "",
    secret_name: str = "",
    read_secret: Callable[[], Mapping[str, str]] = dict,
) -> "Share":
    """The share, with the first credentials that exist: options, environment, Secret, Microsoft Entra ID.

    A sign-in that has no role for the files uses the account's key, if it may list that, as `az storage` does.
    """
    chosen = choose_account(
        account,
        options,
        os.environ,
        server=server,
        secret_name=secret_name,
        read_secret=read_secret,
    )
    import logging

    from horovodjob.azurefiles.share import Share

    # The errors of the SDK contain what it logs.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    if options.uses_environment:
        return Share(chosen, share, lambda: _listed_key(chosen.name, options))
    from horovodjob.azurefiles.server_transport import server_transport

    return Share(chosen, share, transport=server_transport(options.networks))


def _listed_key(account: str, options: Options) -> str:
    """The key of the account that the sign-in may list. Raises ClientError."""
    from horovodjob.azurefiles.error_translation import ROLE
    from horovodjob.client.cluster.storage_keys import account_key

    try:
        return account_key(account, options.subscription, options.group)
    except ClientError as error:
        lacking = f"storage account {account}: your sign-in with Microsoft Entra ID lacks the role {ROLE}"
        raise ClientError(f"{lacking}, and its key is not available: {error}") from error
