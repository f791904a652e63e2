"""The health endpoints with a running and with a blocked event loop."""

import asyncio
import http.client
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from itertools import count

from prometheus_client import CollectorRegistry

from horovodjob_operator.servers.health import HealthServer
from localcluster.control_plane.standalone import free_ports

# A limit for failures only.
WAIT_SECONDS = 120
Answer = tuple[int, str]


@asynccontextmanager
async def health_port(stuck_seconds: float = WAIT_SECONDS) -> AsyncIterator[int]:
    """The port of a server with checks that pass."""
    (port,) = free_ports(1)
    server = HealthServer(
        port,
        unhealthy=lambda: "",
        unready=lambda: "",
        registry=CollectorRegistry(),
        authorize=None,
        stuck_seconds=stuck_seconds,
    )
    await server.start()
    yield port
    await server.cleanup()


def answer(port: int, path: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def work_until(asked: Callable[[], Answer]) -> Answer:
    """The response to another thread while this one, with its event loop, is busy."""
    future: Future[Answer] = Future()
    threading.Thread(target=lambda: future.set_result(asked()), daemon=True).start()
    deadline = time.monotonic() + WAIT_SECONDS
    for _ in count():
        if future.done() or time.monotonic() > deadline:
            break
    return future.result(timeout=0)


async def test_the_health_server_responds_while_the_event_loop_runs() -> None:
    async with health_port() as port:
        assert work_until(lambda: answer(port, "/healthz")) == (200, "ok\n")
        assert work_until(lambda: answer(port, "/readyz")) == (200, "ok\n")


async def test_a_blocked_event_loop_is_unhealthy_until_it_runs_again() -> None:
    async with health_port(stuck_seconds=2) as port:

        def unhealthy() -> Answer:
            while (found := answer(port, "/healthz"))[0] == 200:
                time.sleep(0.1)
            return found

        assert work_until(unhealthy) == (503, "the event loop has been stuck for 2 s\n")
        while (await asyncio.to_thread(answer, port, "/healthz"))[0] != 200:
            await asyncio.sleep(0.1)
        assert (await asyncio.to_thread(answer, port, "/metrics"))[0] == 200
