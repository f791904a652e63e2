"""What the process answers on its own port: /healthz, /readyz, /metrics.

A thread with an event loop of its own answers, so that no probe waits for the operator's loop while that is busy.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from horovodjob_operator.cluster.access import MetricsAccess
from horovodjob_operator.loop_thread import LoopThread, run_on

BEAT_SECONDS = 1
# Much longer than the longest step of a loop that works. The Lease is renewed meanwhile, by another thread, until the
# kubelet restarts the container.
STUCK_SECONDS = 30


class HealthServer:
    """The server; `healthy` and `ready` give a sentence on what is wrong, or nothing, and are called in its thread.

    Without `access` everybody may read the metrics.
    """

    def __init__(
        self,
        port: int,
        *,
        healthy: Callable[[], str],
        ready: Callable[[], str],
        registry: CollectorRegistry,
        access: MetricsAccess | None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._port, self._healthy, self._ready = port, healthy, ready
        self._registry, self._access, self._stuck_seconds = registry, access, stuck_seconds
        self._operator = asyncio.get_running_loop()
        self._runner = web.AppRunner(self._application(), access_log=None)
        self._beat_at = time.monotonic()

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/healthz", _check(self._unhealthy))
        application.router.add_get("/readyz", _check(self._ready))
        application.router.add_get("/metrics", self._metrics)
        return application

    async def start(self) -> None:
        """Starts to answer. Raises OSError."""
        self._thread = LoopThread("health")
        await self._thread.run(self._open())
        self._beat()

    async def _open(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def cleanup(self) -> None:
        """Ends the server and its thread."""
        self._next_beat.cancel()
        await self._thread.run(self._runner.cleanup())
        await self._thread.stop()

    def _beat(self) -> None:
        """Shows that the operator's loop runs."""
        self._beat_at = time.monotonic()
        self._next_beat = self._operator.call_later(BEAT_SECONDS, self._beat)

    def _unhealthy(self) -> str:
        age = time.monotonic() - self._beat_at
        return f"the event loop has been stuck for {age:.0f} s" if age > self._stuck_seconds else self._healthy()

    async def _metrics(self, request: web.Request) -> web.Response:
        """What the operator's loop answers: its caches do not change meanwhile."""
        return await run_on(self._operator, self._read_metrics(request.headers.get("Authorization", "")))

    async def _read_metrics(self, authorization: str) -> web.Response:
        if self._access and (refusal := await self._access.refusal(authorization)):
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
            return web.Response(text=f"{refusal.sentence}\n", status=refusal.status, headers=headers)
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _check(trouble: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        sentence = trouble()
        return web.Response(text=f"{sentence or 'ok'}\n", status=503 if sentence else 200)

    return answer
