"""What the process answers on its own port: /healthz, /readyz, /metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from horovodjob_operator.cluster.access import MetricsAccess


async def serve(
    port: int,
    *,
    healthy: Callable[[], str],
    ready: Callable[[], str],
    registry: CollectorRegistry,
    access: MetricsAccess | None,
) -> web.AppRunner:
    """Starts the server; `healthy` and `ready` give a sentence on what is wrong, or nothing.

    Without `access` everybody may read the metrics.
    """

    def check(trouble: Callable[[], str]) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            sentence = trouble()
            return web.Response(text=f"{sentence or 'ok'}\n", status=503 if sentence else 200)

        return answer

    async def metrics(request: web.Request) -> web.Response:
        if access and (refusal := await access.refusal(request.headers.get("Authorization", ""))):
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
            return web.Response(text=f"{refusal.sentence}\n", status=refusal.status, headers=headers)
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/healthz", check(healthy))  # type: ignore[arg-type]
    application.router.add_get("/readyz", check(ready))  # type: ignore[arg-type]
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
