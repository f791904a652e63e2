"""The page with the GPU hours."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from aiohttp import web

from horovodjob.client.jobs.job_times import current_time
from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.gpu_usage import DAYS, DEFAULT_DAYS, MOST_ROWS, usage
from horovodjob_dashboard.pages import VIEWER, Pages

SECONDS_BETWEEN_READS = 15


class UsageView:
    """GPU hours of the jobs that the viewer may see."""

    def __init__(self, pages: Pages, streams: EventStreams) -> None:
        self._pages, self._streams = pages, streams

    def routes(self) -> list[web.RouteDef]:
        """The addresses of the page."""
        return [
            web.get("/usage", self.usage),
            web.get("/usage/state", self.state),
            web.get("/usage/changes", self.changes),
        ]

    async def usage(self, request: web.Request) -> web.Response:
        """The page with the GPU hours."""
        return self._pages.page(request, "usage.html", await self._used(request))

    async def state(self, request: web.Request) -> web.Response:
        """The part of the page that changes."""
        return self._pages.page(request, "usage_state.html", await self._used(request))

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """A stream with a message whenever the page is to be read again."""
        return await self._streams.send(request, self._ticks(request))

    async def _used(self, request: web.Request) -> dict[str, Any]:
        namespace, given = request.query.get("namespace", ""), request.query.get("days", "")
        days = int(given) if given in map(str, DAYS) else DEFAULT_DAYS
        feed, now = await request[VIEWER].feed(namespace), current_time()
        rows = [row for row in feed.rows.values() if namespace in ("", row.namespace)]
        used = await asyncio.to_thread(usage, rows, now - timedelta(days=days), now)
        return {"feed": feed, "namespace": namespace, "days": days, "periods": DAYS, "used": used, "most": MOST_ROWS}

    async def _ticks(self, request: web.Request) -> AsyncGenerator[str]:
        """At once when the jobs are known, and then at intervals."""
        feed = await request[VIEWER].feed(request.query.get("namespace", ""))
        if not feed.is_synced:
            await feed.wait_for_change(feed.version())
            yield "read"
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_READS)
            await request[VIEWER].feed(request.query.get("namespace", ""))
            yield "read"
