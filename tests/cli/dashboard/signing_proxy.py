"""A proxy that signs viewers in, as oauth2-proxy does: it adds their token, or leads to its own sign-in page."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from aiohttp import ClientSession, web

from cli.dashboard.in_cluster import InCluster

TOKEN_HEADER = "X-Forwarded-Access-Token"
OMITTED = ("Content-Length", "Transfer-Encoding", "Content-Encoding")


class SigningProxy:
    """While `is_signed_in`, every request is that of the viewer; else it is answered with a redirect."""

    def __init__(self, server: InCluster, token: str) -> None:
        self.is_signed_in, self.origin = True, ""
        self._target, self._token = server.origin, token
        self._streams: set[asyncio.Task[None]] = set()
        self.loop = asyncio.new_event_loop()

    def end_streams(self) -> None:
        """Ends all open responses."""
        for each in list(self._streams):
            self.loop.call_soon_threadsafe(each.cancel)

    async def serve(self) -> web.AppRunner:
        """Begins to listen on a free port."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not self.is_signed_in:
            raise web.HTTPFound("https://login.example.com/authorize")
        headers = {**request.headers, TOKEN_HEADER: self._token}
        async with (
            ClientSession(auto_decompress=False) as session,
            session.get(f"{self._target}{request.path_qs}", headers=headers) as answer,
        ):
            kept = {name: value for name, value in answer.headers.items() if name not in OMITTED}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)

            async def copy() -> None:
                async for data in answer.content.iter_any():
                    await response.write(data)

            copying = asyncio.ensure_future(copy())
            self._streams.add(copying)
            with contextlib.suppress(asyncio.CancelledError):
                await copying
            self._streams.remove(copying)
        return response


@contextlib.contextmanager
def signing_proxy(server: InCluster, token: str) -> Iterator[SigningProxy]:
    """The proxy in front of a dashboard in a cluster."""
    made = SigningProxy(server, token)
    thread = threading.Thread(target=made.loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(made.serve(), made.loop).result()
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), made.loop).result()
        made.loop.call_soon_threadsafe(made.loop.stop)
        thread.join()
