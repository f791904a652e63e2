"""A fake of Microsoft Entra ID: tokens for a client secret or for a federated workload identity.

    with Entra(tmp_path) as entra:
        entra.register(client_id, identity=(issuer, subject))

A client needs `AZURE_AUTHORITY_HOST=entra.url` and `REQUESTS_CA_BUNDLE=entra.certificate`. Tokens are opaque to it:
those of the fake are random words, and it believes the claims of a token of another issuer without its signature.
"""

import secrets
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jwt

from support.azure_fakes.https import HttpsServer, Request, Response

TENANT = "72f988bf-0000-4000-8000-000000000001"
AUDIENCE = "api://AzureADTokenExchange"
LIFETIME_SECONDS = 3600
ENDPOINTS = {"authorization_endpoint": "authorize", "token_endpoint": "token"}


class TokenError(Exception):
    """An error of the token endpoint."""

    def __init__(self, code: int, error: str, description: str) -> None:
        super().__init__(description)
        self.code, self.error, self.description = code, error, description


def federated_token(issuer: str, subject: str) -> str:
    """The token of another issuer for Entra, such as that which the kubelet mounts in a pod with workload identity."""
    return jwt.encode({"iss": issuer, "sub": subject, "aud": AUDIENCE}, "not verified, and of 32 characters")


class Entra(HttpsServer):
    """One tenant and its applications, each with a secret or with the issuer and subject of its federated identity."""

    def __init__(self, directory: Path) -> None:
        self.requests: list[dict[str, str]] = []
        self._applications: dict[str, tuple[str | None, tuple[str, str] | None]] = {}
        self._tokens: dict[str, dict[str, str]] = {}
        super().__init__(self._answer, directory)

    def register(self, client_id: str, *, secret: str | None = None, identity: tuple[str, str] | None = None) -> None:
        """Adds an application."""
        self._applications[client_id] = secret, identity

    def token(self, client_id: str, audience: str) -> str:
        """An access token for the application, as the token endpoint issues it."""
        token = secrets.token_urlsafe()
        self._tokens[token] = {
            "aud": audience,
            "appid": client_id,
            "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, client_id)),
        }
        return token

    def claims(self, token: str, audience: str) -> dict[str, str]:
        """Claims of an access token. Raises `jwt.InvalidTokenError` unless this tenant issued it for `audience`."""
        found = self._tokens.get(token)
        if found is None or found["aud"].rstrip("/") != audience:
            raise jwt.InvalidTokenError(f"no token for {audience}")
        return found

    def _answer(self, request: Request) -> Response:
        base = f"{self.url}/{TENANT}"
        match request.method, request.path.strip("/").partition("/")[2]:
            case "POST", "oauth2/v2.0/token":
                form = dict(parse_qsl(request.body.decode()))
                self.requests.append(form)
                try:
                    return Response(200, self._grant(form), {"Cache-Control": "no-store"})
                except TokenError as error:
                    description = f"AADSTS{error.code}: {error.description} Trace ID: {uuid.uuid4()}"
                    body = {"error": error.error, "error_description": description, "error_codes": [error.code]}
                    return Response(400, body)
            case "GET", "v2.0/.well-known/openid-configuration":
                endpoints = {name: f"{base}/oauth2/v2.0/{path}" for name, path in ENDPOINTS.items()}
                return Response(200, {"issuer": f"{base}/v2.0", "jwks_uri": f"{base}/discovery/v2.0/keys", **endpoints})
            case "GET", "discovery/instance":
                return Response(200, {"tenant_discovery_endpoint": f"{base}/v2.0/.well-known/openid-configuration"})
        return Response(404)

    def _grant(self, form: Mapping[str, str]) -> dict[str, Any]:
        client_id = form["client_id"]
        if client_id not in self._applications:
            description = f"Application with identifier '{client_id}' was not found in the directory '{TENANT}'."
            raise TokenError(700016, "unauthorized_client", description)
        secret, identity = self._applications[client_id]
        if "client_assertion" in form:
            claims = jwt.decode(form["client_assertion"], options={"verify_signature": False})
            if (claims["iss"], claims["sub"]) != identity or AUDIENCE not in claims["aud"]:
                raise TokenError(70021, "invalid_client", "No matching federated identity record found.")
        elif secret is None or form.get("client_secret") != secret:
            raise TokenError(7000215, "invalid_client", "Invalid client secret provided.")
        token = self.token(client_id, form["scope"].removesuffix("/.default"))
        return {"token_type": "Bearer", "access_token": token, "expires_in": LIFETIME_SECONDS}
