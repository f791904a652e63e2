"""A proxy between the operator and the API server that injects faults into requests and answers."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from support.api_client import Api, Object

# Headers that are about one connection, not about the request or the answer (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length"})
REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
LARGEST_BODY = 2**24


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request."""

    delay_seconds: float = 0
    """The request is forwarded so much later."""
    before: Callable[[], None] | None = None
    """Called when the request has arrived and has no effect yet."""
    reset_before: bool = False
    """The connection is reset, without effect."""
    status: int = 0
    """The answer, without effect; 0: that of the API server."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of that answer."""
    is_error_event: bool = False
    """That answer is an event of a watch, which ends in the middle of the next event."""
    after: Callable[[], None] | None = None
    """Called when the request has had its effect and is not answered yet."""
    reset_after: bool = False
    """The connection is reset when the request has had its effect."""
    is_half_open: bool = False
    """The answer begins, and nothing follows, not even its end."""
    reset_after_seconds: float = 0
    """The connection is reset so long after the answer has begun; 0: never."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the operator."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Object

    @property
    def is_write(self) -> bool:
        """Whether it changes something of a job."""
        return self.method != "GET" and "/leases" not in self.path and not self.path.endswith("reviews")

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


NO_FAULT = Fault()


class FaultProxy:
    """Forwards HTTP to the API server; `fault` returns what goes wrong with a request."""

    def __init__(self, api: Api, kubeconfig: Path, directory: Path) -> None:
        self.fault: Callable[[Request], Fault] = lambda _: NO_FAULT
        self.answered: list[tuple[Request, int]] = []
        """The requests that the API server has answered, with the status, in order."""
        self._server, self._tls = api.server, ssl.create_default_context(cafile=str(api.authority_file))
        self._loop = asyncio.new_event_loop()
        self._connected = asyncio.Event()
        self._connected.set()
        self._transports: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = self._call(self._start())
        configuration = yaml.safe_load(kubeconfig.read_text())
        configuration["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        self.kubeconfig = directory / "kubeconfig-of-proxy"
        self.kubeconfig.write_text(yaml.safe_dump(configuration))

    def close(self) -> None:
        """Ends all connections."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def reset_all(self) -> None:
        """Resets all connections that wait for an answer or receive one."""

        async def reset() -> None:
            for transport in tuple(self._transports):
                transport.abort()

        self._call(reset())

    def disconnect(self) -> None:
        """From now on nothing arrives at either end, as in a network partition."""
        self._loop.call_soon_threadsafe(self._connected.clear)

    def connect(self) -> None:
        """Ends the partition: what was sent on connections that are still open arrives."""
        self._loop.call_soon_threadsafe(self._connected.set)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> int:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, read_bufsize=2**20
        )
        application = web.Application(client_max_size=LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._answer)
        # A timeout of 0 would be none.
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        assert self._runner
        assert self._session
        await self._session.close()
        await self._runner.cleanup()
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:  # answers to operators that were killed
            for task in rest:
                task.cancel()
            await asyncio.wait(rest)

    async def _answer(self, incoming: web.Request) -> web.StreamResponse:
        if (transport := incoming.transport) is None:
            return web.Response()
        self._transports.add(transport)
        try:
            return await self._answer_or_fail(incoming)
        except (TimeoutError, ConnectionError, aiohttp.ClientError):  # one of the two ends has gone
            return _reset(incoming)
        finally:
            self._transports.discard(transport)

    async def _answer_or_fail(self, incoming: web.Request) -> web.StreamResponse:
        body = await incoming.read()
        await self._connected.wait()
        if incoming.transport is None:  # the operator has given up
            return web.Response()
        request = Request(incoming.method, incoming.path, dict(incoming.query), json.loads(body or b"{}"))
        fault = self.fault(request)
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.before:
            fault.before()
        if fault.reset_before:
            return _reset(incoming)
        if fault.status:
            status = {"kind": "Status", "status": "Failure", "reason": REASONS[fault.status], "code": fault.status}
            status["message"] = "a fault of the test"
            if fault.is_error_event:
                event = json.dumps({"type": "ERROR", "object": status}, separators=(",", ":"))
                return web.Response(text=f'{event}\n{{"type":"MODI', content_type="application/json")
            return web.json_response(status, status=fault.status, headers=dict(fault.headers))
        return await self._forward(incoming, request, body, fault)

    async def _forward(self, incoming: web.Request, request: Request, body: bytes, fault: Fault) -> web.StreamResponse:
        assert self._session
        url = URL(self._server + incoming.raw_path, encoded=True)
        sent = _end_to_end(incoming.headers)
        async with self._session.request(incoming.method, url, data=body or None, headers=sent) as answer:
            self.answered.append((request, answer.status))
            if fault.after:
                fault.after()
            if fault.reset_after:
                return _reset(incoming)
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            async with asyncio.timeout(fault.reset_after_seconds or None):
                await response.prepare(incoming)
                while fault.is_half_open and incoming.transport and not incoming.transport.is_closing():
                    await asyncio.sleep(0.1)
                async for chunk in answer.content.iter_any():
                    await self._connected.wait()
                    await response.write(chunk)
                await response.write_eof()
            return response


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


def _reset(request: web.Request) -> web.Response:
    """Ends the connection without an answer."""
    if request.transport:
        request.transport.abort()
    return web.Response()
