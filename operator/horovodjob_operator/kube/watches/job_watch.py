"""Client middlewares for kopf's list and watch of HorovodJobs.

Kopf (1.45) has no settings for what they do:

- `watching.field_selectors` and `watching.initial_streaming` concern lists and watches alike. Here only lists are
  restricted to unfinished jobs: in a restricted watch, a job that finishes would look like a deleted one.
- Kopf reports neither the end of a list nor the objects that a later list no longer has.
- The status 404 of a list or watch, the status 410 of a watch, and an event with any other error end kopf. It does try
  again after the status 403, as long as `networking.error_backoffs` lasts, and logs each try as an error.
- Kopf parses each event and copies its object for its handlers, in a task for each object.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import pydantic_core
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, StreamReader

from horovodjob.api.constants import API_VERSION, FINISHED_FIELD, PLURAL
from horovodjob_operator.errors import ClusterError, NotServed
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.request_metrics import verb_resource_namespace

FORBIDDEN_RETRY_SECONDS = 10
CRD_RETRY_SECONDS = 1
# An event with the code 410, after which kopf lists again.
EXPIRED = b'{"type":"ERROR","object":{"code":410}}'
log = logging.getLogger("horovodjob.watch")


class UnfinishedJobList:
    """Restricts lists to unfinished jobs, calls `updated` for each job, and `listed` after a complete list.

    Kopf lists again when the API server no longer has the version that it watches from, and reports only the objects
    that exist: without this middleware, jobs that were deleted meanwhile would stay in the cache. Kopf also reports
    jobs one by one and later, so its handlers cannot know when a list is complete.
    """

    def __init__(
        self,
        namespaces: Iterable[str],
        *,
        updated: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
    ) -> None:
        self._updated, self._listed = updated, listed
        self._uids: dict[str, set[str]] = {}
        self._unlisted_namespaces = set(namespaces)
        self.is_selective = True
        """Whether the API server can omit finished jobs; with the CRD of an older release it cannot."""

    @property
    def has_listed(self) -> bool:
        """Whether the jobs of each namespace are listed, or the API server has refused to list them."""
        return not self._unlisted_namespaces

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request, and reads the response if it is a chunk of a list of jobs."""
        verb, resource, namespace = verb_resource_namespace(request)
        if (verb, resource) != ("list", PLURAL):
            return await handler(request)
        response = await self._list(request, handler)
        if response.status in (403, 404):
            self._unlisted_namespaces.discard(namespace)
        if response.status != 200:
            return response
        if "continue" not in request.url.query:
            self._uids[namespace] = set()
        answer = json.loads(await response.read())
        for job in answer["items"]:
            self._uids[namespace].add(job["metadata"]["uid"])
            try:
                self._updated(job)
            except Exception as error:  # A defect that one job shows must not end the list of all others.
                log.error("job list: %s: %s: %s", job["metadata"]["name"], type(error).__name__, error, exc_info=error)
        if not answer["metadata"].get("continue"):
            self._listed(self._uids.pop(namespace), int(answer["metadata"]["resourceVersion"]), namespace)
            self._unlisted_namespaces.discard(namespace)
        return response

    async def _list(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        url = request.url
        if self.is_selective:
            request.url = url.update_query(fieldSelector=f"{FINISHED_FIELD}=")
            response = await handler(request)
            request.url = url  # A list that is forbidden is sent again.
            if response.status != 400:
                return response
            log.warning("the CRD does not support the selection of finished jobs: install the CRD of this release")
            response.release()
            self.is_selective = False
        return await handler(request)


class ForbiddenRetry:
    """Repeats a list or watch of jobs that is forbidden, or that finds no CRD.

    Otherwise kopf would end, and with it the reconciliation of the jobs in all other namespaces.
    """

    def __init__(self) -> None:
        self._reported_namespaces: set[str] = set()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request, and logs the failure once for each namespace."""
        response = await handler(request)
        verb, resource, namespace = verb_resource_namespace(request)
        if resource != PLURAL or verb not in ("list", "watch"):
            return response
        while response.status in (403, 404):
            if namespace not in self._reported_namespaces:
                text = (await response.read()).decode()
                message = json.loads(text)["message"] if text.startswith("{") else text.strip()
                log.warning("job watch: %s; trying again every %d s", message, FORBIDDEN_RETRY_SECONDS)
                self._reported_namespaces.add(namespace)
            response.release()
            await asyncio.sleep(FORBIDDEN_RETRY_SECONDS)
            response = await handler(request)
        self._reported_namespaces.discard(namespace)
        return response


class JobWatch:
    """Handles the events of each watch of jobs, and makes kopf list again after a failure.

    Kopf gets only the version of each event, as a bookmark, from which it watches after a lost connection. It drops
    bookmarks before it calls its handlers; and it ends at the status code 410 and at events of errors other than an
    outdated version.
    """

    def __init__(
        self,
        namespaces: Iterable[str],
        *,
        updated: Callable[[Mapping[str, Any]], None],
        deleted: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._updated, self._deleted = updated, deleted
        self._alive_at = dict.fromkeys(namespaces, time.monotonic())

    @property
    def alive_at(self) -> float:
        """When the watch that has been silent for longest last received data, on the monotonic clock."""
        return min(self._alive_at.values())

    def reset(self) -> None:
        """Records that the API server answers, although it has no jobs to watch."""
        self._alive_at = dict.fromkeys(self._alive_at, time.monotonic())

    async def wait_until_served(self, client: ApiClient) -> None:
        """Returns when the API server serves HorovodJobs, because kopf looks for the resource only once."""
        is_logged = False
        while True:
            try:
                await client.request("GET", f"/apis/{API_VERSION}")
                return
            except ClusterError as error:
                if isinstance(error, NotServed):
                    self.reset()
                if not is_logged:
                    log.warning("the API server does not serve %s, waiting for its CRD: %s", API_VERSION, error)
                is_logged = True
                await asyncio.sleep(CRD_RETRY_SECONDS)

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request, and observes the response if it is a list or a watch."""
        response = await handler(request)
        verb, resource, namespace = verb_resource_namespace(request)
        if resource != PLURAL or verb not in ("list", "watch") or response.status >= 500:
            return response

        def is_alive() -> None:
            self._alive_at[namespace] = time.monotonic()

        is_alive()
        if verb == "watch" and response.status in (200, 410):
            is_expired = response.status == 410
            response.status = 200
            events = _Events(response.content, self._handle, is_alive, is_expired=is_expired)
            response.content = events  # type: ignore[assignment]
        return response

    def _handle(self, line: bytes) -> bytes:
        """Handles an event, and returns a bookmark in place of it."""
        event = pydantic_core.from_json(line, cache_strings="keys")
        raw = event["object"]
        version = raw["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            try:
                (self._deleted if event["type"] == "DELETED" else self._updated)(raw)
            except Exception as error:  # A defect that one job shows must not end the watch of all others.
                metadata = raw["metadata"]
                name = f"{metadata.get('namespace')}/{metadata.get('name')}"
                log.error("job watch: an event of %s: %s: %s", name, type(error).__name__, error, exc_info=error)
        return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s"}}}' % str(version).encode()


class _Events:
    """The content of the response to a watch: a bookmark after the events of a chunk, and the code 410 for an error."""

    def __init__(
        self,
        content: StreamReader,
        handle: Callable[[bytes], bytes],
        on_chunk: Callable[[], None],
        *,
        is_expired: bool,
    ) -> None:
        self._content, self._handle, self._on_chunk, self._is_expired = content, handle, on_chunk, is_expired

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Bookmarks and errors, one a chunk. An event that the API server did not complete is dropped."""
        if self._is_expired:
            yield EXPIRED
            return
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            self._on_chunk()
            *lines, rest = (rest + chunk).split(b"\n")
            bookmark = b""
            for line in filter(None, lines):
                if _is_error(line):
                    yield EXPIRED + b"\n"
                    return
                bookmark = self._handle(line)
            if bookmark:
                yield bookmark + b"\n"


def _is_error(line: bytes) -> bool:
    """Whether this event of a watch is an error, which is logged."""
    if b'"ERROR"' not in line[:20]:  # The type is the first field.
        return False
    log.info("job watch: %s; listing again", json.loads(line)["object"].get("message") or "the watch failed")
    return True
