"""Authorization by account keys, shared access signatures and bearer tokens of Entra.

https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
https://learn.microsoft.com/rest/api/storageservices/create-service-sas
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import jwt
from aiohttp import web

from support.azure_fakes.files.accounts import Account, DataRole
from support.azure_fakes.files.errors import Refusal

AUDIENCE = "https://storage.azure.com"
CLOCK_SKEW = timedelta(minutes=15)
SIGNED_HEADERS = (
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)
CHALLENGE = (
    "Bearer authorization_uri=https://login.microsoftonline.com/00000000-0000-0000-0000-000000000001/oauth2/authorize "
    "resource_id=https://storage.azure.com"
)


@dataclass(frozen=True, slots=True)
class Access:
    """The access that an operation requires: a resource type (c, o) and one of these SAS permissions."""

    resource_type: str
    permissions: str

    @property
    def writes(self) -> bool:
        return not set(self.permissions) & set("rl")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an operation; `path` has no leading slash."""

    account: Account
    share: str
    path: str


# Claims of a token of Entra for an audience; raises jwt.InvalidTokenError for any other.
Claims = Callable[[str, str], Mapping[str, Any]]


def check(request: web.Request, target: Target, access: Access, claims: Claims | None) -> None:
    """Raises Refusal unless the request is authorized."""
    if target.account.firewalled:
        raise Refusal("AuthorizationFailure")
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme == "SharedKey":
        _check_shared_key(request, target.account, credentials)
    elif scheme == "Bearer":
        _check_token(request, target.account, access, credentials, claims)
    elif "sig" in request.query:
        _check_sas(request, target, access)
    else:
        raise Refusal("NoAuthenticationInformation", headers={"WWW-Authenticate": CHALLENGE})


def raw_path(request: web.Request) -> str:
    """The path as sent, without the query; a client with a proxy sends the whole URL."""
    path = request.raw_path.partition("?")[0]
    return path if path.startswith("/") else f"/{path.partition('://')[2].partition('/')[2]}"


def signature(key: str, text: str) -> str:
    """HMAC-SHA256 of the text with an account key, in base64."""
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _check_shared_key(request: web.Request, account: Account, credentials: str) -> None:
    if not account.allows_keys:
        raise Refusal("KeyBasedAuthenticationNotPermitted")
    name, _, signed = credentials.partition(":")
    date = request.headers.get("x-ms-date") or request.headers.get("Date")
    if not date or abs(datetime.now(UTC) - parsedate_to_datetime(date)) > CLOCK_SKEW:
        raise Refusal("AuthenticationFailed", f"Request date header not specified or too far from now: {date}")
    text = _string_to_sign(request, account)
    if name != account.name or not _matches(account, text, signed):
        shown = text.replace("\n", "\\n")
        raise Refusal("AuthenticationFailed", f"The MAC signature is not the same as any computed one. '{shown}'")


def _matches(account: Account, text: str, signed: str) -> bool:
    return any(hmac.compare_digest(signature(key, text), signed) for key in account.keys)


def _string_to_sign(request: web.Request, account: Account) -> str:
    values = [request.headers.get(name, "") for name in SIGNED_HEADERS]
    if values[2] == "0":
        values[2] = ""
    if "x-ms-date" in request.headers:
        values[5] = ""
    # The service sorts with the collation of Windows, which puts hyphens last.
    names = sorted({name.lower() for name in request.headers}, key=lambda name: (name.replace("-", ""), name))
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names if name.startswith("x-ms-"))
    resource = f"/{account.name}{raw_path(request)}"
    parameters = sorted({name.lower() for name in request.query})
    resource += "".join(f"\n{name}:{','.join(sorted(request.query.getall(name)))}" for name in parameters)
    return "\n".join([request.method, *values, ""]) + headers + resource


def _check_sas(request: web.Request, target: Target, access: Access) -> None:
    if not target.account.allows_keys:
        raise Refusal("KeyBasedAuthenticationNotPermitted")
    query = request.query
    if not _matches(target.account, _sas_text(request, target), query["sig"]):
        raise Refusal("AuthenticationFailed", "Signature did not match.")
    now = datetime.now(UTC)
    if _moment(query.get("se", "")) <= now or ("st" in query and _moment(query["st"]) > now):
        raise Refusal("AuthenticationFailed", f"Signature not valid in the specified time frame: {query.get('se')}")
    if query.get("spr") == "https" and not request.secure:
        raise Refusal("AuthenticationFailed", "The protocol must be https.")
    if access.resource_type == "c" and "l" not in access.permissions:
        raise Refusal("AuthorizationFailure")
    if not set(access.permissions) & set(query.get("sp", "")):
        raise Refusal("AuthorizationPermissionMismatch")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal("AuthenticationFailed", f"Signature fields not well formed: {text}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _fields(request: web.Request, *names: str) -> list[str]:
    return [request.query.get(name, "") for name in names]


def _sas_text(request: web.Request, target: Target) -> str:
    path = f"/{target.path}" if request.query.get("sr") == "f" else ""
    resource = f"/file/{target.account.name}/{target.share}{path}"
    rest = _fields(request, "si", "sip", "spr", "sv", "rscc", "rscd", "rsce", "rscl", "rsct")
    return "\n".join([*_fields(request, "sp", "st", "se"), resource, *rest])


def _check_token(request: web.Request, account: Account, access: Access, token: str, claims: Claims | None) -> None:
    if not request.secure or claims is None:
        raise Refusal("AuthenticationFailed", "Bearer tokens are accepted over HTTPS only.")
    try:
        identity = claims(token, AUDIENCE)
    except jwt.InvalidTokenError as error:
        headers = {"WWW-Authenticate": CHALLENGE}
        raise Refusal("InvalidAuthenticationInfo", str(error), headers) from error
    if request.headers.get("x-ms-file-request-intent") != "backup":
        raise Refusal("MissingRequiredHeader", "x-ms-file-request-intent")
    role = account.roles.get(identity["oid"])
    if role is None or (access.writes and role is not DataRole.CONTRIBUTOR):
        raise Refusal("AuthorizationPermissionMismatch")
