"""The connection to the API server: one connector, plain dicts, own errors, every request counted."""

import asyncio
import json
import logging
import math
import re
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse

from horovodjob_operator.cluster.request_queue import Priority, RequestQueue
from horovodjob_operator.errors import Gone, NameTaken, NotServed, OperatorError, Refused, Unavailable
from horovodjob_operator.metrics import API_REQUESTS

TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
TOKEN_SECONDS = 60
# An overloaded API server asks for a second or a few. Whatever it says, an operator must not seem dead.
LONGEST_PAUSE_SECONDS = 30
TRIES = 5
USER_AGENT = "horovodjob-operator"
# Answers to writes are needed for their metadata only.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
# The answer to a deletecollection is a list of all that was deleted, and is not needed at all.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PATH = re.compile(
    r"^/apis?/(?:[^/]+/)?v[^/]+(?:/namespaces/[^/]+)?/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
log = logging.getLogger("horovodjob.connection")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


def verb_and_resource(request: ClientRequest) -> tuple[str, str]:
    """What a request asks for, in the words of RBAC."""
    match = PATH.match(request.url.path)
    if not match:
        return request.method.lower(), "other"
    resource, name, sub = match["resource"], match["name"], match["sub"]
    verb = VERBS.get(request.method, request.method.lower())
    if not name and verb == "get":
        verb = "watch" if "watch" in request.url.query else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return verb, f"{resource}/{sub}" if sub else resource


class Authentication:
    """Client middleware: the service account's token, read again each minute because it is rotated; counts requests."""

    def __init__(self, scheme: str, token: str | None) -> None:
        self._scheme, self._token, self._read_at = scheme, token, 0.0

    def _header(self) -> str | None:
        if TOKEN_FILE.exists() and time.monotonic() - self._read_at > TOKEN_SECONDS:
            self._token, self._read_at = TOKEN_FILE.read_text().strip(), time.monotonic()
        return f"{self._scheme} {self._token}" if self._token else None

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request."""
        if header := self._header():
            request.headers["Authorization"] = header
        verb, resource = verb_and_resource(request)
        try:
            response = await handler(request)
        except aiohttp.ClientError:
            API_REQUESTS.labels(verb, resource, "error").inc()
            raise
        API_REQUESTS.labels(verb, resource, str(response.status)).inc()
        return response


class Pause:
    """Client middleware: an answer with Retry-After makes all requests wait that share this object.

    An overloaded API server rejects requests for now (429) without effect: those are sent again. What else it answers
    may have had an effect, and is for the caller to judge.
    """

    def __init__(self) -> None:
        self._until = -math.inf

    @property
    def seconds_left(self) -> float:
        """How long no request may be sent; 0 or less: not at all."""
        return self._until - time.monotonic()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request when it may be sent."""
        for tries_left in reversed(range(TRIES)):
            while (seconds := self.seconds_left) > 0:
                await asyncio.sleep(seconds)
            response = await handler(request)
            if response.status < 400 or not (text := response.headers.get("Retry-After", "")).isdecimal():
                break
            self._begin(int(text), response.status)
            if response.status != 429 or not tries_left:
                break
            await response.read()
        return response

    def _begin(self, seconds: int, status: int) -> None:
        seconds = min(max(seconds, 1), LONGEST_PAUSE_SECONDS)
        if self.seconds_left <= 0:
            log.warning("the API server answers %d and asks to wait: all requests pause for %d s", status, seconds)
        self._until = max(self._until, time.monotonic() + seconds)


class Connection:
    """Requests to the API server, at most `limit` at a time; raises the errors of `errors.py`."""

    def __init__(self, info: kopf.ConnectionInfo, *, limit: int, pause: Pause | None = None) -> None:
        context = info.as_ssl_context()
        self.server = info.server
        # Watches are not counted: they last, and never wait for other requests.
        self._queue = RequestQueue(limit)
        self._connector = aiohttp.TCPConnector(ssl=context if isinstance(context, ssl.SSLContext) else True, limit=0)
        # The outermost comes first: what has waited may have become forbidden, and each try is counted.
        self._middlewares: tuple[ClientMiddlewareType, ...] = (
            *([pause] if pause else []),
            self._refuse_writes,
            Authentication(info.scheme or "Bearer", info.token),
        )
        self.may_write: Callable[[], bool] = lambda: True
        self.session = self.new_session()

    def new_session(self, *middlewares: ClientMiddlewareType) -> aiohttp.ClientSession:
        """A session on the shared connector; kopf gets its own, because it closes a session it mistrusts."""
        return aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            middlewares=(*middlewares, *self._middlewares),
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=60),
            read_bufsize=2**20,
        )

    @property
    def waiting(self) -> int:
        """How many requests wait for others to be answered."""
        return self._queue.depth

    async def aclose(self) -> None:
        """Ends all connections."""
        await self.session.close()
        await self._connector.close()

    async def _refuse_writes(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Client middleware: sends the request unless it is a write that may not be made now. Raises Unavailable."""
        if request.method != "GET" and not self.may_write():
            raise Unavailable(f"{request.method} {request.url.path} was not sent: the Lease was not renewed in time")
        return await handler(request)

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> dict[str, Any]:
        """The answer's object. Raises Refused, NameTaken, Gone, NotServed or Unavailable.

        Unavailable is also what a write gets that may not be made now.
        """
        headers = {"Accept": accept, "Content-Type": content_type}
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        # Reviews are POST as well, but they concern no namespace, and those who ask for them wait.
        priority = Priority.LOW if method == "POST" and "/namespaces/" in path else Priority.HIGH
        try:
            async with (
                self._queue.slot(priority),
                self.session.request(method, self.server + path, data=data, params=params, headers=headers) as response,
            ):
                text = await response.text()
                status, retry_after = response.status, response.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{method} {path}: {error or type(error).__name__}") from error
        if status < 400:
            answer: dict[str, Any] = json.loads(text)
            return answer
        raise _error(status, text, retry_after, f"{method} {path}")


def _error(status: int, text: str, retry_after: str | None, request: str) -> OperatorError:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    message = answer.get("message") or text[:300] or f"HTTP {status}"
    if status == 409:
        return NameTaken(message)
    if status == 404:
        # The answer names the object or namespace that is not there, and nothing where its kind is unknown.
        return Gone(message) if (answer.get("details") or {}).get("name") else NotServed(message)
    if status in (400, 403, 405, 413, 415, 422):
        causes = (answer.get("details") or {}).get("causes") or ()
        if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
            return Gone(message)
        return Refused(message, over_quota=status == 403 and "exceeded quota" in message)
    return Unavailable(f"{request}: {status} {message}" + (f", retry after {retry_after} s" if retry_after else ""))


def login() -> kopf.ConnectionInfo:
    """Credentials of the pod's service account, else those of the kubeconfig."""
    logger, settings = logging.getLogger("horovodjob.login"), kopf.OperatorSettings()
    info = kopf.login_with_service_account(logger=logger, settings=settings)
    info = info or kopf.login_with_kubeconfig(logger=logger, settings=settings)
    if info is None:
        raise OperatorError(
            "no way to the API server: run in a pod with a service account, or set KUBECONFIG to a kubeconfig file"
        )
    return info
