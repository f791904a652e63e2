"""The order of requests, where there are more than may be sent at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress

import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from horovodjob_operator.kube.api_client import ApiClient
from horovodjob_operator.kube.request_queue import Priority, RequestQueue

LIMIT = 2


class Slow:
    """A server that answers when it is told to, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        await self.may_answer.wait()
        return web.json_response({})


@pytest.fixture
async def slow() -> Slow:
    return Slow()


@pytest.fixture
async def connection(slow: Slow) -> AsyncIterator[ApiClient]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", slow.answer)
    server = TestServer(application)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        info = kopf.ConnectionInfo(server=str(server.make_url("/")).rstrip("/"))
        yield await stack.enter_async_context(aclosing(ApiClient(info, limit=LIMIT)))


async def until_asked(slow: Slow, number: int) -> None:
    while len(slow.asked) < number:
        await asyncio.sleep(0.001)


async def test_what_tells_users_how_it_is_goes_before_creations_that_wait(slow: Slow, connection: ApiClient) -> None:
    creations = [asyncio.create_task(connection.request("POST", f"/namespaces/a/pod-{number}")) for number in range(6)]
    await until_asked(slow, LIMIT)
    status = asyncio.create_task(connection.request("PATCH", "/status"))
    while connection.queue_depth < 5:
        await asyncio.sleep(0)
    slow.may_answer.set()
    await asyncio.gather(status, *creations)
    assert slow.asked.index("PATCH /status") in (LIMIT, LIMIT + 1)
    creations_asked = [request for request in slow.asked if request != "PATCH /status"]
    assert creations_asked == [f"POST /namespaces/a/pod-{n}" for n in range(6)]
    assert connection.queue_depth == 0


async def test_a_request_that_is_given_up_takes_no_turn_from_others(slow: Slow, connection: ApiClient) -> None:
    tasks = [asyncio.create_task(connection.request("POST", f"/namespaces/a/pod-{number}")) for number in range(5)]
    await until_asked(slow, LIMIT)
    while connection.queue_depth < 3:
        await asyncio.sleep(0)
    for number in (0, 2, 4):  # one that was sent, and two that wait
        tasks[number].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[number]
    slow.may_answer.set()
    await asyncio.gather(tasks[1], tasks[3])
    assert {"POST /namespaces/a/pod-2", "POST /namespaces/a/pod-4"}.isdisjoint(slow.asked)
    # All slots are free again: as many as there are can be used at once.
    slow.may_answer.clear()
    slow.asked.clear()
    more = [asyncio.create_task(connection.request("GET", f"/{number}")) for number in range(LIMIT)]
    await until_asked(slow, LIMIT)
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


async def test_a_watch_takes_no_turn_from_requests(slow: Slow, connection: ApiClient) -> None:
    watches = [asyncio.create_task(watch(connection)) for _ in range(LIMIT)]
    await until_asked(slow, LIMIT)
    requests = [asyncio.create_task(connection.request("GET", f"/{number}")) for number in range(LIMIT)]
    await until_asked(slow, 2 * LIMIT)
    slow.may_answer.set()
    await asyncio.gather(*watches, *requests)


async def watch(connection: ApiClient) -> None:
    async with connection.session.get(f"{connection.server}/watch") as response:
        await response.read()
