"""Translation of errors of azure-core and azure-storage-file-share to FilesError."""

from collections.abc import Iterator
from contextlib import contextmanager

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceModifiedError,
    ServiceRequestError,
    ServiceResponseError,
)
from urllib3.exceptions import MaxRetryError, NameResolutionError

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.errors import (
    AccessDenied,
    AlreadyExists,
    CredentialsMissing,
    DirectoryNotFound,
    FileChanged,
    FileNotFound,
    FilesError,
    InvalidLocation,
    ShareNotFound,
    Unavailable,
)

ROLE = "Storage File Data Privileged Contributor"


@contextmanager
def translate_errors(account: Account, share: str, path: str = "") -> Iterator[None]:
    """Raises errors of the SDK in the block as FilesError."""
    try:
        yield
    except AzureError as error:
        raise _translate(error, account, share, path) from error


def _translate(error: AzureError, account: Account, share: str, path: str) -> FilesError:
    host = f"storage account {account.name}"
    if isinstance(error, ResourceModifiedError):
        return FileChanged(f"{path} on share {share} changed while it was read")
    status = (error.status_code or 0) if isinstance(error, HttpResponseError) else 0
    if isinstance(error, HttpResponseError) and status >= 400:
        return _refusal(error, account, share, path)
    if status >= 300:
        return FilesError(f"{host}: {account.endpoint} sends the request to another address, which is not followed")
    if isinstance(error, ClientAuthenticationError):
        if account.key is not None:
            return AccessDenied(f"{host}: {account.source} is not an account key, which is 64 bytes in base64")
        return CredentialsMissing(
            f"{host}: no credentials; set `account_key=` or AZURE_STORAGE_CONNECTION_STRING, or sign in with "
            "`az login` as an identity with the role " + ROLE
        )
    if isinstance(error, ServiceRequestError):
        if _is_unknown_host(error):
            return Unavailable(
                f"{host}: the host of {account.endpoint} is unknown; check the account's name, or the endpoint in "
                "AZURE_STORAGE_SERVICE_ENDPOINT where it is not that of the public cloud"
            )
        return Unavailable(f"{host}: no connection to {account.endpoint}; check the network, a proxy or a firewall")
    if isinstance(error, ServiceResponseError | HttpResponseError):  # the latter in the middle of a body
        return Unavailable(f"the connection to {host} failed several times; try again")
    return FilesError(f"{host}: {_first_line(error)}")


def _refusal(error: HttpResponseError, account: Account, share: str, path: str) -> FilesError:
    code = getattr(error, "error_code", None)
    code = str(getattr(code, "value", code) or "")
    host, where = f"storage account {account.name}", f"share {share} of storage account {account.name}"
    subject = f"{path} on {where}" if path else where
    match code:
        case "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation":
            return AccessDenied(f"{host} does not accept {account.source}; {_credential_remedy(account)}")
        case "KeyBasedAuthenticationNotPermitted":
            return AccessDenied(f"{host} allows no keys and no SAS; sign in with `az login` and the role {ROLE}")
        case "AuthorizationPermissionMismatch" | "InsufficientAccountPermissions":
            if account.sas is not None:
                return AccessDenied(f"{subject}: {account.source} lacks the permission; create another")
            return AccessDenied(f"{subject}: {account.source} lacks the role; request {ROLE} on {host}")
        case "AuthorizationResourceTypeMismatch":
            return AccessDenied(f"{subject}: {account.source} is not for this kind of resource; create another")
        case "AuthorizationFailure" if account.sas is None:
            return AccessDenied(f"{host}: its network rules refuse this network; allow it, or use a VPN")
        case "AuthorizationFailure":
            return AccessDenied(f"{subject}: {account.source} does not allow this, or the network rules refuse you")
        case "AccountIsDisabled":
            return AccessDenied(f"{host} is disabled; check it in the Azure portal")
        case "ShareNotFound":
            return ShareNotFound(f"{where} does not exist; create it with `hvj storage share create --name {share}`")
        case "ParentNotFound":
            return DirectoryNotFound(f"the directory of {path} does not exist on {where}")
        case "ResourceNotFound":
            return FileNotFound(f"{path or '/'} does not exist on {where}")
        case "ShareBeingDeleted":
            return AlreadyExists(f"{where} is being deleted; try again in a minute")
        case "ResourceAlreadyExists" | "ShareAlreadyExists":
            return AlreadyExists(f"{subject} already exists")
        case "ResourceTypeMismatch":
            return AlreadyExists(f"{subject} is a file instead of a directory, or a directory instead of a file")
        case "SharingViolation":
            return FilesError(
                f"{subject} is open in a program with exclusive access; try again when the program has ended"
            )
        case "InvalidResourceName":
            return InvalidLocation(f"{subject} is not a name that Azure Files allows")
    status = error.status_code or 0
    if status >= 500 or status == 429:
        return Unavailable(f"{host} is busy or unavailable ({status} {code}); try again later")
    return FilesError(f"{subject}: {_first_line(error)} ({status} {code})")


def _credential_remedy(account: Account) -> str:
    if account.key is not None:
        return f"it was rotated or belongs to another account; see `az storage account keys list -n {account.name}`"
    if account.sas is not None:
        return "it has expired, or was made with a key that was rotated: create another"
    return "sign in again with `az login`"


def _is_unknown_host(error: ServiceRequestError) -> bool:
    cause = error.inner_exception
    reason = cause.args[0] if cause is not None and cause.args else None
    return isinstance(reason.reason if isinstance(reason, MaxRetryError) else cause, NameResolutionError)


def _first_line(error: AzureError) -> str:
    return str(error.message or error).strip().partition("\n")[0].rstrip(".")
