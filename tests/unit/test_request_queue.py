"""The order of requests if there are more than the limit of concurrent ones."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress

import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from horovodjob_operator.kube.api_client import ApiClient
from horovodjob_operator.kube.request_queue import Priority, RequestQueue

LIMIT = 2


class SlowServer:
    """A server that responds on demand and records its requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        await self.may_answer.wait()
        return web.json_response({})


@pytest.fixture
async def slow() -> SlowServer:
    return SlowServer()


@pytest.fixture
async def connection(slow: SlowServer) -> AsyncIterator[ApiClient]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", slow.answer)
    server = TestServer(application)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        info = kopf.ConnectionInfo(server=str(server.make_url("/")).rstrip("/"))
        yield await stack.enter_async_context(aclosing(ApiClient(info, limit=LIMIT)))


async def wait_for_requests(slow: SlowServer, number: int) -> None:
    while len(slow.asked) < number:
        await asyncio.sleep(0.001)


async def test_status_writes_precede_queued_creations(slow: SlowServer, connection: ApiClient) -> None:
    creations = [asyncio.create_task(connection.request("POST", f"/namespaces/a/pod-{number}")) for number in range(6)]
    await wait_for_requests(slow, LIMIT)
    status = asyncio.create_task(connection.request("PATCH", "/status"))
    while connection.queue.depth < 5:
        await asyncio.sleep(0)
    slow.may_answer.set()
    await asyncio.gather(status, *creations)
    assert slow.asked.index("PATCH /status") in (LIMIT, LIMIT + 1)
    creations_asked = [request for request in slow.asked if request != "PATCH /status"]
    assert creations_asked == [f"POST /namespaces/a/pod-{n}" for n in range(6)]
    assert connection.queue.depth == 0


async def test_a_cancelled_request_does_not_occupy_a_slot(slow: SlowServer, connection: ApiClient) -> None:
    tasks = [asyncio.create_task(connection.request("POST", f"/namespaces/a/pod-{number}")) for number in range(5)]
    await wait_for_requests(slow, LIMIT)
    while connection.queue.depth < 3:
        await asyncio.sleep(0)
    for number in (0, 2, 4):  # one sent request and two queued ones
        tasks[number].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[number]
    slow.may_answer.set()
    await asyncio.gather(tasks[1], tasks[3])
    assert {"POST /namespaces/a/pod-2", "POST /namespaces/a/pod-4"}.isdisjoint(slow.asked)
    # All slots are free again and can be used concurrently.
    slow.may_answer.clear()
    slow.asked.clear()
    more = [asyncio.create_task(connection.request("GET", f"/{number}")) for number in range(LIMIT)]
    await wait_for_requests(slow, LIMIT)
    slow.may_answer.set()
    await asyncio.gather(*more)


async def test_a_request_can_be_cancelled_at_the_moment_a_slot_becomes_free() -> None:
    queue = RequestQueue(1)

    async def use_slot() -> None:
        async with queue.slot(Priority.HIGH):
            pass

    async with queue.slot(Priority.LOW):
        given_up, other = asyncio.create_task(use_slot()), asyncio.create_task(use_slot())
        while queue.depth < 2:
            await asyncio.sleep(0)
        given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await other
    await use_slot()
    assert queue.depth == 0


async def test_the_queue_knows_when_a_request_last_had_to_wait() -> None:
    queue = RequestQueue(1)

    async def use_slot() -> None:
        async with queue.slot(Priority.LOW):
            pass

    await use_slot()
    assert queue.seconds_since_full == math.inf
    async with queue.slot(Priority.LOW):
        other = asyncio.create_task(use_slot())
        while queue.depth < 1:
            await asyncio.sleep(0)
        assert queue.seconds_since_full == 0
    await other
    assert 0 < queue.seconds_since_full < math.inf


async def test_a_watch_does_not_occupy_a_slot(slow: SlowServer, connection: ApiClient) -> None:
    watches = [asyncio.create_task(watch(connection)) for _ in range(LIMIT)]
    await wait_for_requests(slow, LIMIT)
    requests = [asyncio.create_task(connection.request("GET", f"/{number}")) for number in range(LIMIT)]
    await wait_for_requests(slow, 2 * LIMIT)
    slow.may_answer.set()
    await asyncio.gather(*watches, *requests)


async def watch(connection: ApiClient) -> None:
    async with connection.session.get(f"{connection.server}/watch") as response:
        await response.read()
