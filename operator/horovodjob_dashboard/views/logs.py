"""The log of a pod: followed in the page, or as a file."""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from horovodjob_cli.cluster import kube
from horovodjob_cli.errors import translated
from horovodjob_dashboard import log_stream
from horovodjob_dashboard.access_guard import HEADERS
from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.pages import VIEWER

LOG = "/jobs/{namespace}/{name}/log/{pod}"


class LogsView:
    """Logs, with requests of the viewer's own."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        """The addresses of a pod's log."""
        return [web.get(f"{LOG}.txt", self.file), web.get(LOG, self.followed)]

    async def followed(self, request: web.Request) -> web.StreamResponse:
        """A stream with the last lines of a pod's log and each new one."""
        return await self._streams.send(request, _messages(await _pod(request)))

    async def file(self, request: web.Request) -> web.StreamResponse:
        """The whole log of a pod, as a file."""
        with self._streams.one(request[VIEWER]):
            return await _file(request)


async def _file(request: web.Request) -> web.StreamResponse:
    pod = await _pod(request)
    name = pod["metadata"]["name"]
    response = web.StreamResponse(headers={**HEADERS, "Content-Disposition": f'attachment; filename="{name}.log"'})
    response.content_type = "text/plain"
    stream = log_stream.chunks(pod, follow=False)
    first = await anext(stream, b"")  # an error is a page, not a broken file
    await response.prepare(request)
    await response.write(first)
    try:
        async for chunk in stream:
            await response.write(chunk)
    except Exception as error:
        if translated(error) is None:
            raise
        # Without the end of the response, the browser reports that the file is incomplete.
        assert request.transport
        request.transport.abort()
    return response


async def _messages(pod: dict[str, Any]) -> AsyncIterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
        async for chunk in log_stream.chunks(pod, follow=True):
            yield json.dumps({"text": decoder.decode(chunk)})
    except Exception as error:
        yield json.dumps({"end": str(translated(error) or error)})
    else:
        yield json.dumps({"end": "The container has ended."})


async def _pod(request: web.Request) -> dict[str, Any]:
    namespace, name = request.match_info["namespace"], request.match_info["pod"]
    pod: dict[str, Any] = kube.plain(await asyncio.to_thread(kube.core().read_namespaced_pod, name, namespace))
    return pod
