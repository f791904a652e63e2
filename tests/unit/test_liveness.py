"""Readiness and liveness of the process: it is ready after its lists, and healthy while its watches are alive."""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

import kopf
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from horovodjob_operator import process
from horovodjob_operator.kube.lease import lease_client
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.watches.job_watch import UnfinishedJobList
from horovodjob_operator.settings import Settings

PATH = "/apis/horovodjob.dev/v1beta1/namespaces/{}/horovodjobs"


async def listed(request: web.Request) -> web.Response:
    """Two chunks of one job each in one namespace; the other is forbidden."""
    if request.match_info["namespace"] == "forbidden":
        return web.json_response({"message": "forbidden"}, status=403)
    number = int(request.query.get("continue") or 0)
    metadata = {"resourceVersion": "7"} if number else {"continue": "1"}
    return web.json_response({"metadata": metadata, "items": [{"metadata": {"uid": str(number)}}]})


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    application = web.Application()
    application.router.add_get(PATH.format("{namespace}"), listed)
    started = TestServer(application)
    async with started:
        yield started


async def test_jobs_are_listed_after_the_last_chunk_of_each_namespace(server: TestServer) -> None:
    seen: list[Mapping[str, Any]] = []
    complete: list[tuple[set[str], int, str]] = []
    lists = UnfinishedJobList(("a", "forbidden"), updated=seen.append, listed=lambda *found: complete.append(found))
    answered = []
    async with ClientSession(server.make_url("/"), middlewares=(lists,)) as session:
        for path in (PATH.format("a"), PATH.format("a") + "?continue=1", PATH.format("forbidden")):
            await (await session.get(path)).read()
            answered.append((len(seen), lists.has_listed))
    assert answered == [(1, False), (2, False), (2, True)]
    assert complete == [({"0", "1"}, 7, "a")]


async def test_each_watch_is_part_of_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    info = kopf.ConnectionInfo(server="http://127.0.0.1:1")
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(aclosing(ApiClient(info, limit=1)))
        lease = await stack.enter_async_context(lease_client(info))
        operator = process.Process(Settings(), connection, connection, *lease)
        assert operator.unhealthy() == ""
        monkeypatch.setattr(process, "MAX_WATCH_AGE_SECONDS", -1)
        operator.job_watch.reset()
        assert operator.unhealthy() == "the watch of the pods has been silent for 0 s"
        operator.pod_watches[0].received_at = math.inf
        assert operator.unhealthy() == "the watch of the HorovodJobs has been silent for 0 s"
