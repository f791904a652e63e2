"""The client of the API server: one connector, plain dicts, the errors of `errors.py`."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

import aiohttp
import kopf
import pydantic_core
from aiohttp import ClientMiddlewareType, ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from horovodjob.api.constants import OPERATOR_APP_NAME
from horovodjob_operator.errors import Unavailable
from horovodjob_operator.kube.requests.authentication import Authentication
from horovodjob_operator.kube.requests.error_responses import error_from_response
from horovodjob_operator.kube.requests.request_metrics import count_request
from horovodjob_operator.kube.requests.retries import RetryAfter

# Only the metadata of objects in responses to writes are used.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
# The response to a deletecollection is a list of all deleted objects.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Objects in each part of a list. A larger part would determine the maximum memory of the process.
LIST_CHUNK = 100
# A creation that takes longer waits for a webhook, and not for the API server.
SLOW_CREATION_SECONDS = 1.0
NAMESPACE_SHARE = 0.75


class LeaderConnector(aiohttp.TCPConnector):
    """Connections that send writes only while `may_write` returns True.

    It is the last step before a request is sent: a process that was stopped meanwhile continues here.
    """

    may_write: Callable[[], bool] = staticmethod(lambda: True)

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        """A connection for this request. Raises Unavailable for a write without a current Lease."""
        connection = await super().connect(req, traces, timeout)
        if req.method != "GET" and not self.may_write():
            connection.release()
            raise Unavailable(f"{req.method} {req.url.path} was not sent: the Lease was not renewed in time")
        return connection


class ApiClient:
    """Sends requests to the API server, at most `limit` at a time, and half as many creations.

    A job has a creation for each pod, and its status must not wait for those of all other jobs.
    """

    def __init__(
        self,
        info: kopf.ConnectionInfo,
        *,
        limit: int,
        retry_after: RetryAfter | None = None,
        keep_alive_seconds: float = 15,
    ) -> None:
        context = info.as_ssl_context()
        self.server = info.server
        # Watches do not count: they last for minutes, and must not wait for other requests.
        self._creations, self._others = CreationSlots(max(limit // 2, 1)), asyncio.Semaphore(limit)
        self._connector = LeaderConnector(
            ssl=context if isinstance(context, ssl.SSLContext) else True, limit=0, keepalive_timeout=keep_alive_seconds
        )
        # The outermost is first: each try is counted.
        self._middlewares: tuple[ClientMiddlewareType, ...] = (
            *([retry_after] if retry_after else []),
            count_request,
            Authentication(info.scheme or "Bearer", info.token),
        )
        self.session = self.new_session()

    def new_session(self, *middlewares: ClientMiddlewareType) -> aiohttp.ClientSession:
        """A session on the shared connector. Kopf gets its own, because it closes a session after some errors."""
        return aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            middlewares=(*middlewares, *self._middlewares),
            headers={"User-Agent": OPERATOR_APP_NAME},
            timeout=aiohttp.ClientTimeout(total=60),
            read_bufsize=2**20,
        )

    def only_write_if(self, may_write: Callable[[], bool]) -> None:
        """Sends writes only while this returns True."""
        self._connector.may_write = may_write

    async def pages(self, path: str, selector: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The parts of a list. Raises as `request` does, such as Gone if the version of the list has expired."""
        params = {**selector, "limit": str(LIST_CHUNK)}
        while True:
            page = await self.request("GET", path, params=params)
            yield page
            if not (following := page["metadata"].get("continue")):
                return
            params["continue"] = following

    async def aclose(self) -> None:
        """Closes all connections."""
        await self.session.close()
        await self._connector.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        is_creation: bool = False,
    ) -> dict[str, Any]:
        """The object in the response. Creations wait for creations, and other requests do not wait for them.

        Raises Refused, AlreadyExists, Conflict, Gone, NotServed or Unavailable, also without a current Lease.
        """
        headers = {"Accept": accept, "Content-Type": content_type}
        data = None if body is None else pydantic_core.to_json(body)
        try:
            async with (
                self._creations.slot(_namespace(path)) if is_creation else self._others,
                self.session.request(method, self.server + path, data=data, params=params, headers=headers) as response,
            ):
                content = await response.read()
                status, retry_after = response.status, response.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{method} {path}: {error or type(error).__name__}") from error
        if status < 400:
            answer: dict[str, Any] = pydantic_core.from_json(content, cache_strings="keys")
            return answer
        raise error_from_response(status, content, retry_after, method=method, path=path)


def _namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]


class CreationSlots:
    """How many creations are sent at a time, for all namespaces and for one.

    A namespace with a slow admission webhook must not delay the others.
    """

    def __init__(self, number: int) -> None:
        self._slots = asyncio.Semaphore(number)
        self._share = max(round(number * NAMESPACE_SHARE), 1)
        self._of_namespace: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """A slot for one creation. A slow one gives it back before it ends, and then counts for its namespace alone."""
        own = self._of_namespace.setdefault(namespace, asyncio.Semaphore(self._share))
        async with own:
            await self._slots.acquire()
            is_held = True

            def release() -> None:
                nonlocal is_held
                if is_held:
                    is_held = False
                    self._slots.release()

            timer = asyncio.get_running_loop().call_later(SLOW_CREATION_SECONDS, release)
            try:
                yield
            finally:
                timer.cancel()
                release()
