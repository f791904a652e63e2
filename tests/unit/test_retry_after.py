"""The operator and an API server that rejects requests temporarily."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing

import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from horovodjob_operator.errors import Unavailable
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.retries import LONGEST_PAUSE_SECONDS, TRIES, RetryAfter

LONG = (429, str(10 * LONGEST_PAUSE_SECONDS))


class OverloadedServer:
    """A server that responds with these status codes and Retry-After first, then with 200. It records its requests."""

    def __init__(self) -> None:
        self.answers: deque[tuple[int, str]] = deque()
        self.asked: list[tuple[str, float]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, time.monotonic()))
        status, seconds = self.answers.popleft() if self.answers else (200, "")
        headers = {"Retry-After": seconds} if seconds else {}
        return web.json_response({"message": "too many requests"}, status=status, headers=headers)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@pytest.fixture
def overloaded() -> OverloadedServer:
    return OverloadedServer()


@pytest.fixture
async def connections(
    overloaded: OverloadedServer,
) -> AsyncIterator[tuple[ApiClient, ApiClient, ApiClient, RetryAfter]]:
    """Two connections with a common pause, one without, and the pause."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", overloaded.answer)
    server, pause = TestServer(application), RetryAfter()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        info = kopf.ConnectionInfo(server=str(server.make_url("/")).rstrip("/"))
        first, second = (ApiClient(info, limit=1, retry_after=pause) for _ in range(2))
        other = ApiClient(info, limit=1)
        for connection in (first, second, other):
            await stack.enter_async_context(aclosing(connection))
        yield first, second, other, pause


Connections = tuple[ApiClient, ApiClient, ApiClient, RetryAfter]


async def wait_for_pause(pause: RetryAfter) -> None:
    while pause.seconds_left == -math.inf:
        await asyncio.sleep(0.01)


async def test_retry_after_delays_all_requests_and_the_rejected_one_is_repeated(
    connections: Connections, overloaded: OverloadedServer
) -> None:
    one, two, _, pause = connections
    overloaded.answers.append((429, "1"))
    first = asyncio.create_task(one.request("POST", "/first"))
    await wait_for_pause(pause)
    async with two.session.get(f"{two.server}/watch") as response:
        assert response.status == 200
    await first
    assert sorted(overloaded.paths) == ["/first", "/first", "/watch"]
    assert min(at for _, at in overloaded.asked[1:]) - overloaded.asked[0][1] >= 1


async def test_only_the_lease_is_renewed_during_a_pause_of_limited_length(
    connections: Connections, overloaded: OverloadedServer
) -> None:
    one, two, lease, pause = connections
    overloaded.answers.append(LONG)
    others = [asyncio.create_task(one.request("GET", "/one"))]
    await wait_for_pause(pause)
    others.append(asyncio.create_task(two.request("GET", "/two")))
    await lease.request("PUT", "/lease")
    assert overloaded.paths == ["/one", "/lease"]
    assert pause.seconds_left <= LONGEST_PAUSE_SECONDS
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_a_write_is_not_repeated_after_the_lease_was_lost(
    connections: Connections, overloaded: OverloadedServer
) -> None:
    one, *_, pause = connections
    overloaded.answers.append((429, "1"))
    write = asyncio.create_task(one.request("POST", "/pods"))
    await wait_for_pause(pause)
    one.only_write_if(lambda: False)
    with pytest.raises(Unavailable, match="the Lease was not renewed in time"):
        await write
    assert overloaded.paths == ["/pods"]


async def test_the_number_of_retries_is_limited(connections: Connections, overloaded: OverloadedServer) -> None:
    overloaded.answers.extend([(429, "1")] * 10)
    with pytest.raises(Unavailable, match="429 too many requests, retry after 1 s"):
        await connections[0].request("POST", "/pods")
    assert overloaded.paths == ["/pods"] * TRIES


async def test_a_request_that_may_have_had_an_effect_is_not_repeated(
    connections: Connections, overloaded: OverloadedServer
) -> None:
    one, *_, pause = connections
    overloaded.answers.append((503, "30"))
    with pytest.raises(Unavailable, match="503 too many requests, retry after 30 s"):
        await one.request("POST", "/pods")
    assert overloaded.paths == ["/pods"]
    assert pause.seconds_left > 0
