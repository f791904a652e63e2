"""The watch of the jobs' pods: listed in chunks, then followed for ever; what was missed is listed again."""

import asyncio
import contextlib
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, StreamReader

from horovodjob.api.vocabulary import LABEL_JOB, PLURAL
from horovodjob_operator.cluster.connection import Connection, verb_and_resource
from horovodjob_operator.errors import ClusterError, Gone, Refused

CHUNK = "500"
# The API server sends a bookmark each minute, and ends a watch in time: a stream that is silent for longer is dead and
# does not know it.
SILENCE_SECONDS, LATE_SECONDS = 70, 5
FORBIDDEN_SECONDS = 10
log = logging.getLogger("horovodjob.watch")


def silence_seconds(timeout_seconds: int) -> int:
    """How long a watch that is to end after `timeout_seconds` may be silent."""
    return min(SILENCE_SECONDS, timeout_seconds + LATE_SECONDS)


class PodWatch:
    """Calls `seen` for each pod that is there or changes, `gone` for each that is deleted, `listed` after a list.

    It watches one namespace, or all.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        seen: Callable[[Mapping[str, Any]], None],
        gone: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        timeout_seconds: int,
        namespace: str = "",
    ) -> None:
        self._connection, self._seen, self._gone, self._listed = connection, seen, gone, listed
        self._timeout_seconds = timeout_seconds
        self.namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self.alive_at = time.monotonic()
        self.answered = asyncio.Event()
        """Set once the API server has answered with a complete list, or has refused it."""

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        failures, outdated, reported = 0, 0, ""
        while True:
            try:
                version = await self._list()
                failures, reported = 0, ""
                while True:
                    version = await self._follow(version)
                    outdated = 0
            except Gone as error:
                # An overloaded API server may refuse each watch at once; lists would add to its load.
                outdated += 1
                delay = _delay(outdated)
                log.info("pod watch: %s; listing again in %.1f s", error, delay)
            except (ClusterError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                failures += 1
                delay = _delay(failures)
                if isinstance(error, Refused):
                    self.alive_at = time.monotonic()
                    self.answered.set()
                failure = str(error) or type(error).__name__
                # A namespace on which the operator has no right is reported once, not at each try.
                level = logging.DEBUG if failure == reported else logging.WARNING
                log.log(level, "pod watch: %s; listing again in %.1f s", failure, delay)
                reported = failure
            await asyncio.sleep(delay)

    async def _list(self) -> str:
        """Version of the list; every pod in it has been seen, and what is not in it is gone."""
        uids: set[str] = set()
        params = {"labelSelector": LABEL_JOB, "limit": CHUNK}
        while True:
            answer = await self._connection.request("GET", self._path, params=params)
            self.alive_at = time.monotonic()
            for pod in answer["items"]:
                uids.add(pod["metadata"]["uid"])
                self._seen(pod)
            following, version = answer["metadata"].get("continue"), answer["metadata"]["resourceVersion"]
            if not following:
                self._listed(uids, int(version), self.namespace)
                self.answered.set()
                return str(version)
            params["continue"] = following

    async def _follow(self, version: str) -> str:
        """Version of the last event of one watch request. Raises Gone when it has to be listed again."""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "labelSelector": LABEL_JOB,
            "resourceVersion": version,
            "timeoutSeconds": str(self._timeout_seconds),
        }
        silence = silence_seconds(self._timeout_seconds)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        url = f"{self._connection.server}{self._path}"
        async with self._connection.session.get(url, params=params, timeout=timeout) as response:
            if response.status == 410:
                raise Gone("the version is too old")
            response.raise_for_status()
            self.alive_at = time.monotonic()
            while line := await response.content.readline():
                self.alive_at = time.monotonic()
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Gone(event["object"].get("message") or "the watch failed")
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._gone(event["object"])
                elif event["type"] != "BOOKMARK":
                    self._seen(event["object"])
        return version


def _delay(times: int) -> float:
    """Seconds until the next try after so many failures in a row."""
    return min(30.0, 0.2 * 2.0 ** min(times, 10)) * random.uniform(0.5, 1)


class JobLists:
    """Client middleware of kopf's session: calls `seen` for each listed job, `listed` with the uids of a complete list.

    Kopf lists again when the API server no longer has the version that it watches from, and reports the objects that
    are there: without this the jobs that were deleted meanwhile would stay in the cache for ever. It also reports them
    one by one and some time later: nobody could say when all of them have been taken in.
    """

    def __init__(
        self,
        namespaces: Iterable[str],
        *,
        seen: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], str], None],
    ) -> None:
        self._seen, self._listed = seen, listed
        self._uids: dict[str, set[str]] = {}
        self._awaited = set(namespaces)

    @property
    def answered(self) -> bool:
        """Whether the jobs of each namespace have been taken in, or the API server has refused to list them."""
        return not self._awaited

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request, and reads the answer where it is a chunk of a list of jobs."""
        response = await handler(request)
        if verb_and_resource(request) != ("list", PLURAL):
            return response
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
            self._listed(self._uids.pop(namespace), namespace)
            self._awaited.discard(namespace)
        return response


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
