"""The lists and watches of HorovodJobs: client middlewares of kopf's session, and the lists of finished jobs."""

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, StreamReader

from horovodjob.api.constants import API_VERSION, FINISHED_FIELD, PLURAL
from horovodjob_operator.cluster.connection import Connection, verb_and_resource
from horovodjob_operator.cluster.pod_watch import retry_delay
from horovodjob_operator.errors import ClusterError

FORBIDDEN_SECONDS = 10
# Nobody waits for these lists, and a large chunk would be the most memory that the process ever needs.
FINISHED_CHUNK = "100"
log = logging.getLogger("horovodjob.watch")


class JobLists:
    """Client middleware of kopf's session: lists the jobs that have not ended, and calls `listed` for a complete list.

    Kopf lists again when the API server no longer has the version that it watches from, and reports the objects that
    are there: without this the jobs that were deleted meanwhile would stay in the cache for ever. It also reports them
    one by one and some time later: nobody could say when all of them have been taken in.

    The watches that follow are of all jobs: one that ends is seen to end, and is not taken for a deleted one.
    """

    def __init__(
        self,
        namespaces: Iterable[str],
        *,
        seen: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
    ) -> None:
        self._seen, self._listed = seen, listed
        self._uids: dict[str, set[str]] = {}
        self._awaited = set(namespaces)
        self.selects = True
        """Whether the API server can leave out the jobs that have ended; a CRD of an older release cannot."""

    @property
    def answered(self) -> bool:
        """Whether the jobs of each namespace have been taken in, or the API server has refused to list them."""
        return not self._awaited

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request, and reads the answer where it is a chunk of a list of jobs."""
        if verb_and_resource(request) != ("list", PLURAL):
            return await handler(request)
        response = await self._list(request, handler)
        namespace = namespace_of(request)
        if response.status in (403, 404):
            self._awaited.discard(namespace)
        if response.status != 200:
            return response
        if "continue" not in request.url.query:
            self._uids[namespace] = set()
        answer = json.loads(await response.read())
        for job in answer["items"]:
            self._uids[namespace].add(job["metadata"]["uid"])
            with contextlib.suppress(Exception):  # kopf calls our handler as well, and logs what it raises
                self._seen(job)
        if not answer["metadata"].get("continue"):
            self._listed(self._uids.pop(namespace), int(answer["metadata"]["resourceVersion"]), namespace)
            self._awaited.discard(namespace)
        return response

    async def _list(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        url = request.url
        if self.selects:
            request.url = url.update_query(fieldSelector=f"{FINISHED_FIELD}=")
            response = await handler(request)
            if response.status != 400:
                return response
            log.warning("the CRD cannot tell finished jobs from others: install the one of this release")
            response.release()
            self.selects, request.url = False, url
        return await handler(request)


class FinishedJobLists:
    """Lists the jobs that have ended: calls `seen` for each, `listed` after a complete list.

    They are many, and there is hardly ever something to do for them: nobody waits for these lists.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        seen: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
    ) -> None:
        self._connection, self._seen, self._listed = connection, seen, listed
        self._namespaces: asyncio.Queue[str] = asyncio.Queue()

    def request(self, namespace: str) -> None:
        """Asks for a list of one namespace, or of all."""
        self._namespaces.put_nowait(namespace)

    async def run(self) -> None:
        """Lists what is asked for until cancelled."""
        failures = 0
        while True:
            namespace = await self._namespaces.get()
            try:
                await self._list(namespace)
                failures = 0
            except (ClusterError, ValueError) as error:
                failures += 1
                delay = retry_delay(failures)
                log.warning("the finished jobs cannot be listed: %s; trying again in %.1f s", error, delay)
                await asyncio.sleep(delay)
                self.request(namespace)

    async def _list(self, namespace: str) -> None:
        path = f"/apis/{API_VERSION}/{f'namespaces/{namespace}/' if namespace else ''}{PLURAL}"
        params, uids = {"fieldSelector": f"{FINISHED_FIELD}!=", "limit": FINISHED_CHUNK}, set[str]()
        while True:
            answer = await self._connection.request("GET", path, params=params)
            for job in answer["items"]:
                uids.add(job["metadata"]["uid"])
                self._seen(job)
            if not (following := answer["metadata"].get("continue")):
                return self._listed(uids, int(answer["metadata"]["resourceVersion"]), namespace)
            params["continue"] = following


class JobRights:
    """Client middleware of kopf's session: repeats a list or watch of jobs that is forbidden or finds no CRD.

    Kopf would end, and with it the reconciliation of the jobs in all other namespaces.
    """

    def __init__(self) -> None:
        self._reported: set[str] = set()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request; reports a namespace once."""
        response = await handler(request)
        verb, resource = verb_and_resource(request)
        if resource != PLURAL or verb not in ("list", "watch"):
            return response
        namespace = namespace_of(request)
        while response.status in (403, 404):
            if namespace not in self._reported:
                text = (await response.read()).decode()
                message = json.loads(text)["message"] if text.startswith("{") else text.strip()
                log.warning("job watch: %s; trying again each %d s", message, FORBIDDEN_SECONDS)
                self._reported.add(namespace)
            response.release()
            await asyncio.sleep(FORBIDDEN_SECONDS)
            response = await handler(request)
        self._reported.discard(namespace)
        return response


class JobSigns:
    """Client middleware of kopf's session: notes each sign of life of the watches of jobs.

    Kopf drops bookmarks, the only events on an idle cluster, before its handlers are called.
    """

    def __init__(self, namespaces: Iterable[str]) -> None:
        self._alive_at = dict.fromkeys(namespaces, time.monotonic())

    @property
    def alive_at(self) -> float:
        """The last sign of life of the watch that has been silent for longest, on the monotonic clock."""
        return min(self._alive_at.values())

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request; each chunk of the answer to a watch is a sign of life."""
        response = await handler(request)
        verb, resource = verb_and_resource(request)
        if resource == PLURAL and verb in ("list", "watch") and response.status < 500:
            namespace = namespace_of(request)
            self._note(namespace)
            if verb == "watch":
                response.content = _NotedStream(response.content, lambda: self._note(namespace))  # type: ignore[assignment]
        return response

    def note_all(self) -> None:
        """Notes that the API server answers, and has no jobs to watch."""
        for namespace in self._alive_at:
            self._note(namespace)

    def _note(self, namespace: str) -> None:
        self._alive_at[namespace] = time.monotonic()


class _NotedStream:
    """The content of a response, which calls `note` for each chunk that is read."""

    def __init__(self, content: StreamReader, note: Callable[[], None]) -> None:
        self._content, self._note = content, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """What the response's own method gives."""
        async for chunk in self._content.iter_chunked(size):
            self._note()
            yield chunk


def namespace_of(request: ClientRequest) -> str:
    """The namespace in the path of a request; empty for one that is about all namespaces."""
    found = re.search(r"/namespaces/([^/]+)/", request.url.path)
    return found[1] if found else ""
