"""The page of the cluster: its pools of nodes, and its queues."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, TypeVar

from aiohttp import web

from horovodjob.client.cluster import cluster_view, kube, queues
from horovodjob.client.errors import ClientError, translated
from horovodjob.client.jobs.job_times import current_time
from horovodjob_dashboard.cluster_rows import PodOnNode, pod_on_node, pool_rows, queue_rows
from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.operator_state import OperatorState
from horovodjob_dashboard.pages import VIEWER, Pages

Found = TypeVar("Found")
PODS_OF_A_REQUEST = 500
# Nodes and pods have no watch here: the page reads them again after this time.
SECONDS_BETWEEN_READS = 15


class ClusterView:
    """Nodes, pods and queues, read with requests of the viewer's own. What the viewer may not read is a sentence."""

    def __init__(self, pages: Pages, streams: EventStreams, operator: OperatorState) -> None:
        self._pages, self._streams, self._operator = pages, streams, operator

    def routes(self) -> list[web.RouteDef]:
        """The addresses of the cluster."""
        return [
            web.get("/cluster", self.cluster),
            web.get("/cluster/state", self.state),
            web.get("/cluster/changes", self.changes),
        ]

    async def cluster(self, request: web.Request) -> web.Response:
        """The page of the cluster."""
        return self._pages.page(request, "cluster.html", await self._read(request))

    async def state(self, request: web.Request) -> web.Response:
        """The changing part of the page."""
        return self._pages.page(request, "cluster_state.html", await self._read(request))

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """A stream with a message whenever the page is to be read again."""
        return await self._streams.send(request, _ticks())

    async def _read(self, request: web.Request) -> dict[str, Any]:
        feed = await request[VIEWER].feed(request.query.get("namespace", ""))
        (nodes, nodes_error), (pods, pods_error), (local_queues, queues_error), problem = await asyncio.gather(
            _or_sentence(cluster_view.read_nodes),
            _or_sentence(_pods_on_nodes),
            _or_sentence(queues.local_queues, feed.namespace),
            self._operator.problem(request[VIEWER], feed.unobserved.values()),
        )
        return {
            "namespace": feed.namespace,
            "pools": pool_rows(nodes, pods, current_time()),
            "nodes_error": nodes_error,
            "pods_error": pods_error,
            "queues": queue_rows(feed.rows.values(), local_queues),
            "queues_error": queues_error,
            "operator_problem": problem,
        }


async def _ticks() -> AsyncGenerator[str]:
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_READS)
        yield "read"


def _pods_on_nodes() -> list[PodOnNode]:
    """The pods that hold resources of nodes, of all namespaces; a page of them at a time is in memory."""
    found: list[PodOnNode] = []
    token = ""
    while True:
        response = kube.core().list_pod_for_all_namespaces(
            limit=PODS_OF_A_REQUEST, _continue=token, _preload_content=False
        )
        listing = json.loads(response.data)
        found += filter(None, map(pod_on_node, listing["items"]))
        token = listing["metadata"].get("continue", "")
        if not token:
            return found


async def _or_sentence(read: Callable[..., Iterable[Found]], *arguments: Any) -> tuple[list[Found], str]:
    """What the function reads, and an empty sentence; or nothing, and why the API server refused it."""
    try:
        return list(await asyncio.to_thread(read, *arguments)), ""
    except Exception as error:
        found = error if isinstance(error, ClientError) else translated(error)
        if found is None:
            raise
        return [], str(found)
