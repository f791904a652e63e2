"""The process of `hvj dashboard`: contexts of the kubeconfig, for the user of this machine."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from aiohttp import web

from horovodjob.azurefiles.credentials import Options
from horovodjob_dashboard.access_guard import AccessGuard
from horovodjob_dashboard.application import application
from horovodjob_dashboard.local_access import REFUSAL, LocalAccess
from horovodjob_dashboard.page_settings import PageSettings
from horovodjob_dashboard.pages import STATIC, Link, Pages
from horovodjob_dashboard.viewer import Feeds, Viewer

SECONDS_BETWEEN_SWEEPS = 30
# Requests to the API server at the same time: by default there would be four more than processors.
REQUEST_THREADS = 64
Address = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Context:
    """A context of the kubeconfig: a client, and the name of its cluster on the pages.

    `only` limits the list to one namespace; `default` is the namespace if the user may not list all.
    """

    name: str
    cluster: str
    client: Any
    only: str
    default: str


class _Fixed:
    """Access of one viewer, by the pages of the local dashboard."""

    def __init__(self, viewer: Viewer, access: LocalAccess) -> None:
        self._viewer, self._access = viewer, access

    async def viewer(self, request: web.Request) -> Viewer:
        if not self._access.is_page(request):
            raise web.HTTPForbidden(text=REFUSAL)
        return self._viewer

    def forget(self, _: web.Request) -> None:
        pass


async def serve(
    listener: socket.socket, contexts: Sequence[Context], settings: PageSettings, is_ready: Callable[[Address], None]
) -> NoReturn:
    """Serves the jobs of the contexts on the socket until it is cancelled.

    `is_ready` gets a function that makes addresses, of which each begins the session of one browser.
    """
    access = LocalAccess(listener.getsockname()[1])
    middlewares = [AccessGuard(access.origins).check, access.check]
    feeds = [Feeds() for _ in contexts]
    viewers = [
        Viewer(
            each.client,
            shared,
            user=each.name,
            cluster=each.cluster,
            only=each.only,
            default=each.default,
            storage=Options(),
        )
        for each, shared in zip(contexts, feeds, strict=True)
    ]
    if len(viewers) == 1:
        made = application(_Fixed(viewers[0], access), Pages(settings=settings), middlewares=middlewares)
    else:
        links = [Link(each.name, f"/contexts/{number}") for number, each in enumerate(contexts, start=1)]
        made = web.Application(middlewares=middlewares)
        made.router.add_get("/", _redirect_to(f"{links[0].root}/"))
        made.router.add_static("/static", STATIC)
        for link, viewer in zip(links, viewers, strict=True):
            made.add_subapp(link.root, application(_Fixed(viewer, access), Pages(link.root, links, settings=settings)))
    await run(made, listener, feeds, lambda: is_ready(access.new_address))


class Swept(Protocol):
    """State that outlives requests."""

    def sweep(self) -> None:
        """Ends what nobody uses any more."""


async def run(
    made: web.Application, listener: socket.socket, state: Sequence[Swept], is_ready: Callable[[], None]
) -> NoReturn:
    """Serves an application until it is cancelled."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(REQUEST_THREADS))
    # Streams end only with their pages: do not wait for them.
    # A stream whose browser has gone ends at once, and not when it is next written to: it counts for its viewer.
    runner = web.AppRunner(made, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        is_ready()
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_SWEEPS)
            for each in state:
                each.sweep()
    finally:
        await runner.cleanup()


def _redirect_to(address: str) -> Callable[[web.Request], Any]:
    async def redirect(_: web.Request) -> web.StreamResponse:
        return web.HTTPSeeOther(address)

    return redirect
