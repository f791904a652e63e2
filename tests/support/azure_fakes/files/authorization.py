"""Authorization by account keys, shared access signatures and bearer tokens of Entra.

https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
https://learn.microsoft.com/rest/api/storageservices/create-service-sas
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt
from aiohttp import web

from support.azure_fakes.files.accounts import Account, DataRole
from support.azure_fakes.files.errors import Refusal

AUDIENCE = "https://storage.azure.com"
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
    """The path as sent, without the query."""
    return request.raw_path.partition("?")[0]


def signature(key: str, text: str) -> str:
    """HMAC-SHA256 of the text with an account key, in base64."""
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _check_shared_key(request: web.Request, account: Account, credentials: str) -> None:
    if not account.allows_keys:
        raise Refusal("KeyBasedAuthenticationNotPermitted")
    name, _, signed = credentials.partition(":")
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
    query = request.query
    if not _matches(target.account, _sas_text(request, target), query["sig"]):
        raise Refusal("AuthenticationFailed", "Signature did not match.")
    if datetime.fromisoformat(query["se"]) <= datetime.now(UTC):
        raise Refusal("AuthenticationFailed", f"Signature not valid in the specified time frame: {query['se']}")
    if access.resource_type == "c" and "l" not in access.permissions:
        raise Refusal("AuthorizationFailure")
    if not set(access.permissions) & set(query.get("sp", "")):
        raise Refusal("AuthorizationPermissionMismatch")


def _fields(request: web.Request, *names: str) -> list[str]:
    return [request.query.get(name, "") for name in names]


def _sas_text(request: web.Request, target: Target) -> str:
    path = f"/{target.path}" if request.query.get("sr") == "f" else ""
    resource = f"/file/{target.account.name}/{target.share}{path}"
    rest = _fields(request, "si", "sip", "spr", "sv", "rscc", "rscd", "rsce", "rscl", "rsct")
    return "\n".join([*_fields(request, "sp", "st", "se"), resource, *rest])


def _check_token(request: web.Request, account: Account, access: Access, token: str, claims: Claims | None) -> None:
    assert claims, "a service without HTTPS gets no tokens"
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
