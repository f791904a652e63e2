"""Credentials of a storage account: a connection string, a key, a SAS, the values of a Secret, or Microsoft Entra ID.

The Azure SDK is imported when a credential is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from horovodjob.api.storage_account import PUBLIC_CLOUD, SECRET_ACCOUNT, SECRET_KEY
from horovodjob.azurefiles import hosts
from horovodjob.azurefiles.errors import CredentialsMissing, FilesError
from horovodjob.azurefiles.location import account_of_endpoint

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
SERVICE_ENDPOINT = "AZURE_STORAGE_SERVICE_ENDPOINT"
# Environment variables by account, key and SAS: Batch AI's own, then those of `az storage`.
VARIABLES = (
    ("AZURE_BATCHAI_STORAGE_ACCOUNT", "AZURE_BATCHAI_STORAGE_KEY", None),
    ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"),
)


@dataclass(frozen=True, slots=True)
class Account:
    """A storage account and its credentials; `source` names their origin in error messages."""

    name: str
    endpoint: str
    source: str
    key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)

    def credential(self) -> dict[str, Any]:
        """The arguments of a client of azure-storage-file-share."""
        if self.key is not None:
            from azure.core.credentials import AzureNamedKeyCredential

            return {"credential": AzureNamedKeyCredential(self.name, self.key)}
        if self.sas is not None:
            # As text, so that the SDK also adds it to the URL of a rename's source.
            return {"credential": self.sas.removeprefix("?")}
        if not self.endpoint.startswith("https://"):
            raise CredentialsMissing(
                f"storage account {self.name}: no key or SAS is given, and {self.endpoint} is not HTTPS, which a "
                "sign-in with Microsoft Entra ID needs"
            )
        from azure.identity import DefaultAzureCredential

        # With the intent, the service checks the role of the caller and not the permissions of single files.
        return {"credential": DefaultAzureCredential(), "token_intent": "backup"}


@dataclass(frozen=True, slots=True)
class Options:
    """The storage account that the user names, and credentials for it."""

    account: str | None = None
    key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)
    connection_string: str | None = field(default=None, repr=False)
    # Where Azure Resource Manager has the account, for its key; otherwise the account is found by its name.
    subscription: str | None = None
    group: str | None = None
    hosts: tuple[str, ...] = ()
    """Hosts that may have the credentials although only a job names them."""
    uses_environment: bool = True
    """False in a server: its environment and its sign-in can have more rights than its user."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Private networks that a server connects to."""


def choose_account(
    name: str | None,
    options: Options,
    environment: Mapping[str, str],
    *,
    server: str = "",
    secret_name: str = "",
    read_secret: Callable[[], Mapping[str, str]] = dict,
) -> Account:
    """The account `name`, or the one that options or environment name, and the first credential that exists for it.

    In this order: options, environment, the values of a Secret, Microsoft Entra ID. A credential of the environment or
    of the Secret that belongs to another account is ignored, and the Secret is read only if it is needed. `name` and
    `server` are what a job says: they decide neither for which account a credential is nor which host gets it.
    Raises FilesError; CredentialsMissing if there is no credential but those of a server, which are not the user's.
    """
    environment = environment if options.uses_environment else {}
    given = _connection(options.connection_string, "`connection_string=`")
    surrounding = _connection(environment.get(CONNECTION_STRING), CONNECTION_STRING)
    named = [environment.get(variable) for variable, _, _ in VARIABLES]
    account = name or options.account or (given.name if given else None) or next(filter(None, named), None)
    account = account or (surrounding.name if surrounding else None)
    if account is None:
        raise CredentialsMissing(
            "no storage account: set `account_name=`, AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING"
        )
    endpoint = _endpoint(account, [given, surrounding], options, environment, server)

    owners = {options.account, *named, surrounding.name if surrounding else None}
    chosen = _from_options(account, endpoint, options, given, has_owner=account in owners)
    is_named = name is None or options.account == account  # by the user, and not only by a job
    chosen = chosen or _from_variables(account, endpoint, environment, is_named=is_named)
    if chosen:
        return chosen
    if surrounding and surrounding.name == account:
        return surrounding
    secret = read_secret()
    if secret.get(SECRET_KEY) and secret.get(SECRET_ACCOUNT, "").strip() == account:
        return Account(account, endpoint, f"the key in Secret {secret_name}", key=secret[SECRET_KEY].strip())
    if not options.uses_environment:
        raise CredentialsMissing(
            f"the files are in storage account {account}, and Secret {secret_name} has no key for it, does not "
            "exist or is not for you to read; `hvj job file` reads them with your sign-in to Azure"
        )
    return Account(account, endpoint, "your sign-in with Microsoft Entra ID")


def _from_options(
    account: str, endpoint: str, options: Options, given: Account | None, *, has_owner: bool
) -> Account | None:
    """The account with the credential of the options, if they have one. Raises FilesError if it is for another one."""
    for other in (options.account, given.name if given else None):
        if other and other != account:
            raise FilesError(f"the files are in storage account {account}, and the given credentials are for {other}")
    if given:
        return given
    if not options.key and not options.sas:
        return None
    kind = "key" if options.key else "SAS"
    if not has_owner:
        raise FilesError(
            f"the files are in storage account {account}, and the given {kind} names no account; name the account that "
            "it is for with `account_name=`"
        )
    credential = {"key": options.key} if options.key else {"sas": options.sas}
    return Account(account, endpoint, f"the given {kind}", **credential)


def _from_variables(account: str, endpoint: str, environment: Mapping[str, str], *, is_named: bool) -> Account | None:
    """The account with the first key or SAS of the environment that is for it. Raises FilesError if that is unclear."""
    for account_variable, key_variable, sas_variable in VARIABLES:
        owner = environment.get(account_variable)
        key, sas = environment.get(key_variable), environment.get(sas_variable) if sas_variable else None
        if (owner and owner != account) or not (key or sas):
            continue
        variable = key_variable if key else sas_variable
        if not owner and not is_named:
            raise FilesError(
                f"the files are in storage account {account}, and {variable} is for an account that {account_variable} "
                "has to name"
            )
        return Account(account, endpoint, f"the {'key' if key else 'SAS'} in {variable}", key or None, sas)
    return None


def _endpoint(
    account: str, connections: list[Account | None], options: Options, environment: Mapping[str, str], server: str
) -> str:
    """The endpoint of the account's connection string, or of the environment, or the one for the server of a job."""
    for connection in connections:
        if connection and connection.name == account:
            return connection.endpoint
    endpoint = environment.get(SERVICE_ENDPOINT, "").rstrip("/")
    if endpoint and account_of_endpoint(endpoint) == account:
        return endpoint
    return hosts.endpoint(account, server, hosts.allowed_hosts(options.hosts, environment))


def _connection(text: str | None, source: str) -> Account | None:
    """The account of a connection string. Raises FilesError, without the string, which is a secret."""
    if not text:
        return None
    pairs = [part.partition("=") for part in text.strip().rstrip(";").split(";")]
    if any(not separator for _, separator, _ in pairs):
        raise FilesError(f"{source}: not a connection string, which is a list of Name=value separated by semicolons")
    values = {name.strip().lower(): value.strip() for name, _, value in pairs}
    endpoint = values.get("fileendpoint", "").rstrip("/")
    name = values.get("accountname") or account_of_endpoint(endpoint)
    if not name:
        raise FilesError(f"{source}: neither AccountName nor FileEndpoint is in the connection string")
    protocol, suffix = values.get("defaultendpointsprotocol", "https"), values.get("endpointsuffix", PUBLIC_CLOUD)
    endpoint = endpoint or f"{protocol}://{name}.file.{suffix}"
    key, sas = values.get("accountkey"), values.get("sharedaccesssignature")
    if not key and not sas:
        raise FilesError(f"{source}: neither AccountKey nor SharedAccessSignature is in the connection string")
    return Account(name, endpoint, f"the connection string of {source}", key, sas)
