"""The server of /healthz, /readyz and /metrics.

It has its own thread and event loop, so that no probe waits while the event loop of the operator is busy.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from horovodjob_operator.loop_thread import LoopThread, run_on
from horovodjob_operator.metrics import PATH
from horovodjob_operator.servers.tls import TlsPort

HEARTBEAT_SECONDS = 1
# Much longer than the longest step of a healthy event loop. Meanwhile another thread renews the Lease, until the
# kubelet restarts the container.
STUCK_SECONDS = 30
Authorize = Callable[[str], Awaitable[tuple[HTTPStatus, str] | None]]
"""Given the header Authorization: status and reason of the response that denies the request, or None."""


class HealthServer:
    """The server. `unhealthy` and `unready` run in its thread, and return a sentence with the problem, if there is one.

    Without `authorize`, all clients can read the metrics. With `tls`, its port alone serves them.
    """

    def __init__(
        self,
        port: int,
        *,
        unhealthy: Callable[[], str],
        unready: Callable[[], str],
        registry: CollectorRegistry,
        authorize: Authorize | None,
        tls: TlsPort | None = None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._port, self._tls, self._unhealthy, self._unready = port, tls, unhealthy, unready
        self._registry, self._authorize, self._stuck_seconds = registry, authorize, stuck_seconds
        self._operator_loop = asyncio.get_running_loop()
        self._runner = web.AppRunner(self._application(), access_log=None)
        self._heartbeat_at = time.monotonic()

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/healthz", _probe(self._problem))
        application.router.add_get("/readyz", _probe(self._unready))
        application.router.add_get(PATH, self._metrics)
        return application

    async def start(self) -> None:
        """Starts the server. Raises OSError."""
        self._thread = LoopThread("health")
        await self._thread.run(self._open())
        self._heartbeat()

    async def _open(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()
        if self._tls:
            await web.TCPSite(self._runner, port=self._tls.number, ssl_context=self._tls.context).start()

    async def cleanup(self) -> None:
        """Ends the server and its thread."""
        self._next_heartbeat.cancel()
        await self._thread.run(self._runner.cleanup())
        await self._thread.stop()

    def _heartbeat(self) -> None:
        """Records that the event loop of the operator runs."""
        self._heartbeat_at = time.monotonic()
        self._next_heartbeat = self._operator_loop.call_later(HEARTBEAT_SECONDS, self._heartbeat)

    def _problem(self) -> str:
        age = time.monotonic() - self._heartbeat_at
        return f"the event loop has been stuck for {age:.0f} s" if age > self._stuck_seconds else self._unhealthy()

    async def _metrics(self, request: web.Request) -> web.Response:
        """The metrics, read in the event loop of the operator so that its caches do not change meanwhile."""
        if self._tls and not request.secure:
            return web.Response(text=f"{PATH} is served over HTTPS, on port {self._tls.number}\n", status=404)
        return await run_on(self._operator_loop, self._read_metrics(request.headers.get("Authorization", "")))

    async def _read_metrics(self, authorization: str) -> web.Response:
        if self._authorize and (denial := await self._authorize(authorization)):
            status, reason = denial
            headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
            return web.Response(text=f"{reason}\n", status=status, headers=headers)
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _probe(problem: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        sentence = problem()
        return web.Response(text=f"{sentence or 'ok'}\n", status=503 if sentence else 200)

    return answer
