"""Hosts that may receive the credentials of a storage account: those of Azure for this account, and the user's own.

The author of a job is another person than its reader, so a host that a job names is used only if Azure gives it to
nobody but the account.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping

from horovodjob.api.storage_account import PUBLIC_CLOUD, files_host
from horovodjob.azurefiles.errors import HostNotAllowed

# A host, or several, that get the credentials of the user although a job names them.
ALLOWED_HOSTS = "HVJ_STORAGE_HOSTS"
# Public Azure, Azure operated by 21Vianet, and Azure Government.
CLOUDS = (PUBLIC_CLOUD, "core.chinacloudapi.cn", "core.usgovcloudapi.net")
# Accounts with a DNS zone of Azure: <account>.z<number>.file.storage.azure.net.
ZONE = re.compile(r"z\d{1,2}\.file\.storage\.azure\.net")


def is_azure_host(host: str, account: str) -> bool:
    """Whether Azure gives this host to the account and to nobody else."""
    name, _, domain = _normalized(host).partition(".")
    domain = domain.removeprefix("privatelink.")
    return name == account and (domain in {f"file.{cloud}" for cloud in CLOUDS} or bool(ZONE.fullmatch(domain)))


def allowed_hosts(given: Collection[str], environment: Mapping[str, str]) -> frozenset[str]:
    """The hosts that the user allows, by options and environment."""
    named = re.split(r"[,\s]+", environment.get(ALLOWED_HOSTS, ""))
    return frozenset(_normalized(host) for host in (*given, *named) if host)


def endpoint(account: str, server: str, allowed: Collection[str]) -> str:
    """The endpoint of an account for which a job names this server. Raises HostNotAllowed."""
    host = _normalized(server)
    if is_azure_host(host, account) or host in allowed:
        return f"https://{host}"
    if not host or _is_address(host):  # that of a private endpoint, to which the name of the account leads
        return f"https://{files_host(account)}"
    raise HostNotAllowed(
        f"the job names the server {server} for storage account {account}, which is no host of Azure for this account, "
        f"so it gets no credentials of yours; if you trust it, allow it with `storage_host={host}` or "
        f"{ALLOWED_HOSTS}={host}"
    )


def _normalized(host: str) -> str:
    return host.strip().lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
