"""Access to shares of Azure Files. The SDK is imported when a share is opened.

The image of the dashboard has this module, and not what the command line prints with.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from horovodjob.azurefiles.credentials import Options, choose_account

if TYPE_CHECKING:
    from horovodjob.azurefiles.share import Share


def open_share(
    share: str,
    options: Options,
    *,
    account: str | None = None,
    default_endpoint: str = "",
    secret_name: str = "",
    read_secret: Callable[[], Mapping[str, str]] = dict,
) -> "Share":
    """The share, with the first credentials that exist: options, environment, Secret, Microsoft Entra ID."""
    chosen = choose_account(
        account,
        options,
        os.environ,
        default_endpoint=default_endpoint,
        secret_name=secret_name,
        read_secret=read_secret,
    )
    import logging

    from horovodjob.azurefiles.share import Share

    # The errors of the SDK contain what it logs.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    return Share(chosen, share)
