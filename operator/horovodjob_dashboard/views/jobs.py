"""The list of jobs, and the streams that report changes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.job_feed import Key
from horovodjob_dashboard.job_rows import COLUMNS, Selection
from horovodjob_dashboard.operator_state import OperatorState
from horovodjob_dashboard.pages import VIEWER, Pages


class JobsView:
    """The list of jobs from the feed of the viewer."""

    def __init__(self, pages: Pages, streams: EventStreams, operator: OperatorState) -> None:
        self._pages, self._streams, self._operator = pages, streams, operator

    def routes(self) -> list[web.RouteDef]:
        """The addresses of the list."""
        return [
            web.get("/", self.jobs),
            web.get("/rows", self.rows),
            web.get("/changes", self.changes),
            web.get("/changes/{namespace}", self.changes),
            web.get("/jobs/{namespace}/{name}/changes", self.changes),
        ]

    async def jobs(self, request: web.Request) -> web.Response:
        """The list of jobs."""
        return self._pages.page(request, "jobs.html", await self._listed(request))

    async def rows(self, request: web.Request) -> web.Response:
        """The rows of the list, which replace those in the page after a change."""
        return self._pages.page(request, "job_rows.html", await self._listed(request))

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """A stream with a message after each change of the jobs of the list, or of one job."""
        name = request.match_info
        key = (name["namespace"], name["name"]) if "name" in name else None
        await request[VIEWER].feed(name.get("namespace", ""))  # a refusal is a response, not an empty stream
        return await self._streams.send(request, _versions(request, key))

    async def _listed(self, request: web.Request) -> dict[str, Any]:
        selection = Selection.from_query(request.query)
        feed = await request[VIEWER].feed(selection.namespace)
        rows = feed.rows.values()
        return {
            "feed": feed,
            "selection": selection,
            "columns": COLUMNS,
            "page": feed.page(selection),
            "experiments": sorted({each.experiment for each in rows if each.experiment}),
            "owners": sorted({each.owner for each in rows if each.owner}),
            "namespaces": sorted({each.namespace for each in rows}),
            "operator_problem": await self._operator.problem(request[VIEWER], feed.unobserved.values()),
            "version": feed.version(),
        }


async def _versions(request: web.Request, key: Key | None) -> AsyncIterator[str]:
    """The version of the jobs, or of one job, whenever it changes."""
    viewer, namespace = request[VIEWER], request.match_info.get("namespace", "")
    since = request.query.get("since", "")
    version = int(since) if since.isdecimal() and len(since) < 18 else -1
    before = None
    while True:
        feed = await viewer.feed(namespace)  # again and again: the viewer is present, and may lose the right
        if before not in (None, feed):
            version = -1
        before = feed
        try:
            async with asyncio.timeout(viewer.review_seconds):
                version = await feed.wait_for_change(version, key)
        except TimeoutError:
            pass  # Ages and durations have changed, and the operator may have started or stopped.
        yield str(version)
