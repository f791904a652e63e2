"""A fake of Microsoft Entra ID: tokens for a client secret or for a federated workload identity.

    with Entra(tmp_path) as entra:
        entra.register(client_id, federated=(FederatedCredential(issuer, subject),))
        entra.trust(issuer, jwks)

A client needs `AZURE_AUTHORITY_HOST=entra.url` and `REQUESTS_CA_BUNDLE=entra.certificate`.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from support.azure_fakes.https import HttpsServer, Request, Response

TENANT = "72f988bf-0000-4000-8000-000000000001"
AUDIENCE = "api://AzureADTokenExchange"
JWT_BEARER = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LIFETIME_SECONDS = 3600
KEY_ID = "fake-entra"
ENDPOINTS = {"authorization_endpoint": "authorize", "token_endpoint": "token"}


@dataclass(frozen=True, slots=True)
class FederatedCredential:
    """Claims of another issuer's token that stand for the application."""

    issuer: str
    subject: str
    audience: str = AUDIENCE


@dataclass(frozen=True, slots=True)
class Application:
    """An application of the tenant."""

    secret: str | None
    federated: tuple[FederatedCredential, ...]


class TokenError(Exception):
    """An error of the token endpoint."""

    def __init__(self, code: int, error: str, description: str, status: int = 401) -> None:
        super().__init__(description)
        self.code, self.error, self.description, self.status = code, error, description, status


class Entra(HttpsServer):
    """One tenant, its applications and the issuers that it trusts."""

    def __init__(self, directory: Path, tenant: str = TENANT) -> None:
        self.tenant = tenant
        self.requests: list[dict[str, str]] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._applications: dict[str, Application] = {}
        self._issuers: dict[str, list[jwt.PyJWK]] = {}
        super().__init__(self._answer, directory)

    def register(
        self, client_id: str, *, secret: str | None = None, federated: tuple[FederatedCredential, ...] = ()
    ) -> None:
        """Adds an application."""
        self._applications[client_id] = Application(secret, federated)

    def trust(self, issuer: str, jwks: Mapping[str, Any]) -> None:
        """Sets the issuer's keys, which the real service reads from the issuer's discovery document."""
        self._issuers[issuer] = jwt.PyJWKSet.from_dict(dict(jwks)).keys

    def token(self, client_id: str, audience: str, *, expires_in: int = LIFETIME_SECONDS) -> str:
        """An access token for the application, as the token endpoint issues it."""
        now = int(time.time())
        claims = {
            "aud": audience,
            "iss": f"https://sts.windows.net/{self.tenant}/",
            "iat": now,
            "nbf": now - 300,
            "exp": now + expires_in,
            "appid": client_id,
            "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, client_id)),
            "tid": self.tenant,
            "ver": "1.0",
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def claims(self, token: str, audience: str) -> dict[str, Any]:
        """Claims of an access token. Raises `jwt.InvalidTokenError` unless this tenant issued it for `audience`."""
        audiences = [audience.rstrip("/"), audience.rstrip("/") + "/"]
        return jwt.decode(token, self._key.public_key(), algorithms=["RS256"], audience=audiences)

    def _answer(self, request: Request) -> Response:
        tenant, _, path = request.path.strip("/").partition("/")
        if tenant != self.tenant and path != "discovery/instance":
            return refusal(TokenError(90002, "invalid_request", f"Tenant '{tenant}' not found.", 400))
        match request.method, path:
            case "POST", "oauth2/v2.0/token":
                form = dict(parse_qsl(request.body.decode()))
                self.requests.append(form)
                try:
                    return Response(200, self._grant(form), {"Cache-Control": "no-store"})
                except TokenError as error:
                    return refusal(error)
            case "GET", "v2.0/.well-known/openid-configuration":
                return Response(200, self._discovery_document())
            case "GET", "discovery/instance":
                return Response(200, {"tenant_discovery_endpoint": f"{self._issuer}/.well-known/openid-configuration"})
        return Response(404)

    @property
    def _issuer(self) -> str:
        return f"{self.url}/{self.tenant}/v2.0"

    def _discovery_document(self) -> dict[str, Any]:
        base = f"{self.url}/{self.tenant}"
        endpoints = {name: f"{base}/oauth2/v2.0/{path}" for name, path in ENDPOINTS.items()}
        return {"issuer": self._issuer, "jwks_uri": f"{base}/discovery/v2.0/keys", **endpoints}

    def _grant(self, form: Mapping[str, str]) -> dict[str, Any]:
        if form.get("grant_type") != "client_credentials":
            raise TokenError(70003, "unsupported_grant_type", "The app requested an unsupported grant type.", 400)
        client_id = form.get("client_id", "")
        application = self._applications.get(client_id)
        if application is None:
            description = f"Application with identifier '{client_id}' was not found in the directory '{self.tenant}'."
            raise TokenError(700016, "unauthorized_client", description, 400)
        if form.get("client_assertion_type") == JWT_BEARER and "client_assertion" in form:
            self._check_assertion(application, form["client_assertion"])
        elif application.secret is None or form.get("client_secret") != application.secret:
            raise TokenError(7000215, "invalid_client", "Invalid client secret provided.")
        resource, separator, _ = form.get("scope", "").rpartition("/.default")
        if not separator:
            raise TokenError(1002012, "invalid_scope", f"The scope {form.get('scope')} is not valid.", 400)
        times = {"expires_in": LIFETIME_SECONDS, "ext_expires_in": LIFETIME_SECONDS}
        return {"token_type": "Bearer", "access_token": self.token(client_id, resource), **times}

    def _check_assertion(self, application: Application, assertion: str) -> None:
        """Raises TokenError unless a trusted issuer signed the token for a federated credential of the application."""
        try:
            claims = jwt.decode(assertion, options={"verify_signature": False})
            key_id = jwt.get_unverified_header(assertion).get("kid")
        except jwt.InvalidTokenError:
            raise TokenError(50027, "invalid_request", "Client assertion is not a JWT.", 400) from None
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(
            (each.issuer, each.subject) == (claims.get("iss"), claims.get("sub")) and each.audience in audiences
            for each in application.federated
        ):
            description = "No matching federated identity record found for presented assertion."
            raise TokenError(70021, "invalid_client", description)
        keys = [key for key in self._issuers.get(str(claims.get("iss")), []) if key.key_id == key_id]
        invalid_signature = TokenError(50013, "invalid_client", "Assertion failed signature validation.")
        if not keys:
            raise invalid_signature
        try:
            required: Any = {"verify_aud": False, "require": ["exp"]}
            jwt.decode(assertion, keys[0], algorithms=["RS256", "ES256"], options=required)
        except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError):
            description = f"Client assertion is not within its valid time range. Current time: {timestamp()}."
            raise TokenError(700024, "invalid_client", description) from None
        except jwt.InvalidTokenError:
            raise invalid_signature from None


def refusal(error: TokenError) -> Response:
    """The JSON of the error, with the message of Entra."""
    trace, correlation = str(uuid.uuid4()), str(uuid.uuid4())
    description = (
        f"AADSTS{error.code}: {error.description} Trace ID: {trace} Correlation ID: {correlation} "
        f"Timestamp: {timestamp()}"
    )
    body = {
        "error": error.error,
        "error_description": description,
        "error_codes": [error.code],
        "timestamp": timestamp(),
        "trace_id": trace,
        "correlation_id": correlation,
    }
    return Response(error.status, body)


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
