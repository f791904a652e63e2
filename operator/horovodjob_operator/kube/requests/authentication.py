"""Credentials of the operator for the API server."""

import logging
import time
from pathlib import Path

import kopf
from aiohttp import ClientError, ClientHandlerType, ClientRequest, ClientResponse

from horovodjob_operator.errors import OperatorError

TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
TOKEN_SECONDS = 60


class Authentication:
    """Client middleware: adds the token of the service account, and reads it every minute because it is rotated."""

    def __init__(self, scheme: str, token: str | None) -> None:
        self._scheme, self._token, self._read_at = scheme, token, 0.0

    def _header(self) -> str | None:
        if TOKEN_FILE.exists() and time.monotonic() - self._read_at > TOKEN_SECONDS:
            self._token, self._read_at = TOKEN_FILE.read_text().strip(), time.monotonic()
        return f"{self._scheme} {self._token}" if self._token else None

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request. Raises ClientError for a redirect, which would take the token to another address."""
        if header := self._header():
            request.headers["Authorization"] = header
        response = await handler(request)
        if 300 <= response.status < 400:
            response.close()
            raise ClientError(f"the API server answers with a redirect ({response.status}), which is not followed")
        return response


def login() -> kopf.ConnectionInfo:
    """Credentials of the service account of the pod, else those of the kubeconfig. Raises OperatorError."""
    logger, settings = logging.getLogger("horovodjob.login"), kopf.OperatorSettings()
    info = kopf.login_with_service_account(logger=logger, settings=settings)
    info = info or kopf.login_with_kubeconfig(logger=logger, settings=settings)
    if info is None:
        raise OperatorError(
            "no credentials for the API server: run in a pod with a service account, "
            "or set KUBECONFIG to a kubeconfig file"
        )
    return info
