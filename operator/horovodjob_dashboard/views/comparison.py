"""The comparison of jobs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from horovodjob_dashboard.comparison_table import Choice, comparison_of
from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.job_feed import JobFeed, Key
from horovodjob_dashboard.pages import VIEWER, Pages

Object = dict[str, Any]
# The jobs of a page of the list.
MAX_NAMED = 100
GROUPS = ("experiment", "sweep")
# A comparison reads each of its jobs again.
SECONDS_BETWEEN_CHANGES = 2


class ComparisonView:
    """The curves of several jobs over each other, and a table of the jobs with what differs between them."""

    def __init__(self, pages: Pages, streams: EventStreams) -> None:
        self._pages, self._streams = pages, streams

    def routes(self) -> list[web.RouteDef]:
        """The addresses of the comparison."""
        return [
            web.get("/compare", self.compare),
            web.get("/compare/state", self.state),
            web.get("/compare/changes", self.changes),
        ]

    async def compare(self, request: web.Request) -> web.Response:
        """The page with the jobs of the query, or of an experiment or a sweep, the best one by a metric first."""
        return self._pages.page(request, "compare.html", await self._compared(request))

    async def state(self, request: web.Request) -> web.Response:
        """The part of the page that changes with the jobs."""
        return self._pages.page(request, "compare_state.html", await self._compared(request))

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """A stream with a message after each change of the jobs that the page compares."""
        await _feeds(request)  # a refusal is a response, not an empty stream
        return await self._streams.send(request, _versions(request))

    async def _compared(self, request: web.Request) -> dict[str, Any]:
        names, group, selected = _names(request), _group(request), _selected(request, await _feeds(request))
        version = _version(selected)

        def compared() -> dict[str, Any]:
            found = {f"{key[0]}/{key[1]}": job for key, feed in selected.items() if (job := feed.job(key))}
            return {"missing": [name for name in names if name not in found], **comparison_of(found, choice)}

        choice = Choice.from_query(request.query)
        return {
            "names": names,
            "group": group,
            "group_name": request.query.get(group, ""),
            "namespace": request.query.get("namespace", ""),
            "query": request.query_string,
            "version": version,
            "choice": choice,
            **await asyncio.to_thread(compared),
        }


def _names(request: web.Request) -> list[str]:
    return list(dict.fromkeys(request.query.getall("job", [])))[:MAX_NAMED]


def _group(request: web.Request) -> str:
    return next((each for each in GROUPS if request.query.get(each)), "")


async def _feeds(request: web.Request) -> dict[str, JobFeed]:
    """The feeds with the jobs of the query, by namespace."""
    namespaces = {name.partition("/")[0] for name in _names(request)}
    namespaces |= {request.query.get("namespace", "")} if _group(request) else set()
    return {namespace: await request[VIEWER].feed(namespace) for namespace in namespaces}


def _selected(request: web.Request, feeds: Mapping[str, JobFeed]) -> dict[Key, JobFeed]:
    """The jobs of the query, and those of the experiment or sweep, in one namespace if the query names it."""
    named = [name.partition("/") for name in _names(request)]
    selected = {(namespace, job): feeds[namespace] for namespace, _, job in named}
    if group := _group(request):
        namespace, wanted = request.query.get("namespace", ""), request.query[group]
        feed = feeds[namespace]
        selected |= {
            key: feed for key, row in feed.rows.items() if namespace in ("", key[0]) and getattr(row, group) == wanted
        }
    return selected


def _version(selected: Mapping[Key, JobFeed]) -> str:
    """What differs after each change of one of the jobs."""
    return f"{hash(frozenset((key, feed.version(key)) for key, feed in selected.items())):x}"


async def _versions(request: web.Request) -> AsyncIterator[str]:
    version = request.query.get("since", "")
    while True:
        feeds = await _feeds(request)
        waits = {feed: feed.version() for feed in feeds.values()}
        if (newest := _version(_selected(request, feeds))) != version:
            version = newest
            yield version
        await asyncio.gather(
            asyncio.sleep(SECONDS_BETWEEN_CHANGES), _wait_for_one(waits, request[VIEWER].review_seconds)
        )


async def _wait_for_one(feeds: Mapping[JobFeed, int], seconds: float) -> None:
    """Returns when one of the feeds has a version after this one, or after this time."""
    waiting = [asyncio.ensure_future(feed.wait_for_change(version)) for feed, version in feeds.items()]
    if not waiting:
        await asyncio.sleep(seconds)
        return
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
