"""The watch of jobs: the operator handles the events, and kopf gets bookmarks."""

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from horovodjob_operator.kube.watches import job_watch
from horovodjob_operator.kube.watches.job_watch import EXPIRED, ForbiddenRetry, JobWatch, UnfinishedJobList, _Events


class Chunks:
    """The content of a response, in these chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def event(kind: str, name: str, version: int) -> bytes:
    metadata = {"name": name, "namespace": "team", "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode() + b"\n"


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


class Handled:
    """What the operator was given, in order."""

    def __init__(self, broken: str = "") -> None:
        self.jobs: list[str] = []
        self.broken = broken
        self.watch = JobWatch(("",), updated=self.updated, deleted=self.deleted)

    def updated(self, raw: Mapping[str, Any]) -> None:
        if raw["metadata"]["name"] == self.broken:
            raise TypeError("a defect")
        self.jobs.append(raw["metadata"]["name"])

    def deleted(self, raw: Mapping[str, Any]) -> None:
        self.jobs.append(f"-{raw['metadata']['name']}")

    async def read(self, *chunks: bytes) -> list[Any]:
        """What kopf reads."""
        events = _Events(Chunks(*chunks), self.watch._handle, lambda: None, is_expired=False)  # type: ignore[arg-type]
        return [json.loads(chunk) async for chunk in events.iter_chunked(1)]


async def test_jobs_are_handled_at_once_and_kopf_gets_one_bookmark_a_chunk() -> None:
    handled, second = Handled(), event("DELETED", "b", 12)
    read = await handled.read(event("ADDED", "a", 10) + event("MODIFIED", "a", 11) + second[:20], second[20:])
    assert handled.jobs == ["a", "a", "-b"]
    assert read == [bookmark(11), bookmark(12)]


async def test_a_bookmark_of_the_api_server_is_passed_on() -> None:
    handled = Handled()
    assert await handled.read(event("BOOKMARK", "", 20)) == [bookmark(20)]
    assert handled.jobs == []


async def test_a_defect_that_one_job_shows_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    handled = Handled(broken="odd")
    with caplog.at_level(logging.ERROR):
        read = await handled.read(event("ADDED", "odd", 10) + event("ADDED", "b", 11))
    assert (handled.jobs, read) == (["b"], [bookmark(11)])
    assert "team/odd: TypeError: a defect" in caplog.text


async def test_an_error_makes_kopf_list_again() -> None:
    error = b'{"type":"ERROR","object":{"code":500,"message":"no"}}\n'
    handled = Handled()
    assert await handled.read(event("ADDED", "a", 10) + error) == [json.loads(EXPIRED)]
    assert handled.jobs == ["a"]


async def test_a_forbidden_list_is_sent_again_without_the_selection_that_the_definition_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_watch, "FORBIDDEN_RETRY_SECONDS", 0)
    path, forbidden = "/apis/horovodjob.dev/v1beta1/namespaces/{namespace}/horovodjobs", ["late"]

    async def answer(request: web.Request) -> web.Response:
        """As the API server does without a selectable field; a namespace is forbidden until another one was listed."""
        namespace = request.match_info["namespace"]
        if namespace in forbidden:
            assert (await session.get(path.format(namespace="early"))).status == 200
            forbidden.remove(namespace)
            return web.json_response({"message": "forbidden"}, status=403)
        if "fieldSelector" in request.query:
            return web.json_response({"message": "field label not supported"}, status=400)
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})

    listed = list[str]()
    lists = UnfinishedJobList(
        ("early", "late"), updated=lambda _: None, listed=lambda *arguments: listed.append(arguments[-1])
    )
    application = web.Application()
    application.router.add_get(path, answer)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TestServer(application))
        new_session = ClientSession(server.make_url("/"), middlewares=(ForbiddenRetry(), lists))
        session = await stack.enter_async_context(new_session)
        assert (await session.get(path.format(namespace="late"))).status == 200
    assert listed == ["early", "late"]
