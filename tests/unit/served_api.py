"""A client of an API server whose answers a test decides."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import kopf
from aiohttp import web
from aiohttp.test_utils import TestServer

from horovodjob_operator.kube.requests.api_client import ApiClient


@asynccontextmanager
async def client_of(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[ApiClient]:
    """A client of a real HTTP server that answers every request with this function."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as running:
        info = kopf.ConnectionInfo(server=str(running.make_url("/")).rstrip("/"))
        async with aclosing(ApiClient(info, limit=1)) as client:
            yield client
