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
            description = (
                f"Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into "
                "the correct cloud. Check with your subscription administrator, this may happen if there are no active "
                "subscriptions for the tenant."
            )
            return refusal(TokenError(90002, "invalid_request", description, 400))
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
            case "GET", "discovery/v2.0/keys":
                key = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
                return Response(200, {"keys": [key | {"kid": KEY_ID, "use": "sig", "alg": "RS256"}]})
            case "GET", "discovery/instance":
                return Response(200, {"tenant_discovery_endpoint": f"{self._issuer}/.well-known/openid-configuration"})
        return Response(404)

    @property
    def _issuer(self) -> str:
        return f"{self.url}/{self.tenant}/v2.0"

    def _discovery_document(self) -> dict[str, Any]:
        base = f"{self.url}/{self.tenant}"
        return {
            "issuer": self._issuer,
            "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
            "token_endpoint": f"{base}/oauth2/v2.0/token",
            "jwks_uri": f"{base}/discovery/v2.0/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
            "response_types_supported": ["code"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def _grant(self, form: Mapping[str, str]) -> dict[str, Any]:
        if form.get("grant_type") != "client_credentials":
            description = f"The app requested an unsupported grant type '{form.get('grant_type')}'."
            raise TokenError(70003, "unsupported_grant_type", description, 400)
        client_id = form.get("client_id", "")
        application = self._applications.get(client_id)
        if application is None:
            description = (
                f"Application with identifier '{client_id}' was not found in the directory '{self.tenant}'. This can "
                "happen if the application has not been installed by the administrator of the tenant or consented to "
                "by any user in the tenant. You may have sent your authentication request to the wrong tenant."
            )
            raise TokenError(700016, "unauthorized_client", description, 400)
        self._authenticate(client_id, application, form)
        resource, separator, _ = form.get("scope", "").rpartition("/.default")
        if not separator:
            description = (
                f"The provided value for scope {form.get('scope')} is not valid. Client credential flows must have a "
                "scope value with /.default suffixed to the resource identifier (application ID URI)."
            )
            raise TokenError(1002012, "invalid_scope", description, 400)
        times = {"expires_in": LIFETIME_SECONDS, "ext_expires_in": LIFETIME_SECONDS}
        return {"token_type": "Bearer", "access_token": self.token(client_id, resource), **times}

    def _authenticate(self, client_id: str, application: Application, form: Mapping[str, str]) -> None:
        if form.get("client_assertion_type") == JWT_BEARER and "client_assertion" in form:
            self._check_assertion(application, form["client_assertion"])
        elif "client_secret" not in form:
            description = (
                "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type."
            )
            raise TokenError(7000216, "invalid_client", description)
        elif application.secret is None or form["client_secret"] != application.secret:
            description = (
                "Invalid client secret provided. Ensure the secret being sent in the request is the client secret "
                f"value, not the client secret ID, for a secret added to app '{client_id}'."
            )
            raise TokenError(7000215, "invalid_client", description)

    def _check_assertion(self, application: Application, assertion: str) -> None:
        """Raises TokenError unless a trusted issuer signed the token for a federated credential of the application."""
        try:
            claims = jwt.decode(assertion, options={"verify_signature": False})
            key_id = jwt.get_unverified_header(assertion).get("kid")
        except jwt.InvalidTokenError:
            description = "Client assertion is not a JWT: the token is malformed."
            raise TokenError(50027, "invalid_request", description, 400) from None
        check_federation(application.federated, claims)
        keys = self._issuers.get(str(claims.get("iss")), [])
        key = next((key for key in keys if key.key_id == key_id), None)
        if key is None:
            raise invalid_signature("The key was not found.")
        try:
            jwt.decode(assertion, key, algorithms=["RS256", "ES256"], options={"verify_aud": False, "require": ["exp"]})
        except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError):
            description = (
                f"Client assertion is not within its valid time range. Current time: {timestamp()}, expiry time of "
                f"assertion {datetime.fromtimestamp(claims['exp'], UTC).isoformat()}."
            )
            raise TokenError(700024, "invalid_client", description) from None
        except jwt.InvalidTokenError:
            raise invalid_signature(
                "The provided signature value did not match the expected signature value."
            ) from None


def invalid_signature(reason: str) -> TokenError:
    return TokenError(50013, "invalid_client", f"Assertion failed signature validation. [Reason - {reason}]")


def check_federation(federated: tuple[FederatedCredential, ...], claims: Mapping[str, Any]) -> None:
    """Raises TokenError, in the order of the real service, if no credential has issuer, subject and audience."""
    issuer, subject, audience = claims.get("iss"), claims.get("sub"), claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    no_record = "No matching federated identity record found for presented assertion"
    if not (same_issuer := [each for each in federated if each.issuer == issuer]):
        raise TokenError(700211, "invalid_client", f"{no_record} issuer '{issuer}'.")
    if not (same_subject := [each for each in same_issuer if each.subject == subject]):
        raise TokenError(700213, "invalid_client", f"{no_record} subject '{subject}'.")
    if not any(each.audience in audiences for each in same_subject):
        raise TokenError(700212, "invalid_client", f"{no_record} audience '{', '.join(map(str, audiences))}'.")


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
