"""The watch of the jobs' pods: listed in chunks, then followed for ever; what was missed is listed again."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from horovodjob.api.vocabulary import LABEL_JOB, PLURAL
from horovodjob_operator.cluster.connection import Connection, verb_and_resource
from horovodjob_operator.errors import ClusterError, Gone

CHUNK = "500"
# The API server sends a bookmark each minute: a stream that is silent for longer is dead and does not know it.
SILENCE_SECONDS = 75
log = logging.getLogger("horovodjob.watch")


class PodWatch:
    """Calls `seen` for each pod that is there or changes, `gone` for each that is deleted, `listed` after a list."""

    def __init__(
        self,
        connection: Connection,
        *,
        seen: Callable[[Mapping[str, Any]], None],
        gone: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str]], None],
        timeout_seconds: int,
    ) -> None:
        self._connection, self._seen, self._gone, self._listed = connection, seen, gone, listed
        self._timeout_seconds = timeout_seconds
        self.alive_at = time.monotonic()

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        failures = 0
        while True:
            try:
                version = await self._list()
                failures = 0
                while True:
                    version = await self._follow(version)
            except Gone:
                log.info("pod watch: the API server has forgotten our version, listing again")
            except (ClusterError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                failures += 1
                delay = min(30.0, 0.2 * 2**failures) * random.uniform(0.5, 1)
                log.warning("pod watch: %s; listing again in %.1f s", error or type(error).__name__, delay)
                await asyncio.sleep(delay)

    async def _list(self) -> str:
        """Version of the list; every pod in it has been seen, and what is not in it is gone."""
        uids: set[str] = set()
        params = {"labelSelector": LABEL_JOB, "limit": CHUNK}
        while True:
            answer = await self._connection.request("GET", "/api/v1/pods", params=params)
            self.alive_at = time.monotonic()
            for pod in answer["items"]:
                uids.add(pod["metadata"]["uid"])
                self._seen(pod)
            following = answer["metadata"].get("continue")
            if not following:
                self._listed(uids)
                return str(answer["metadata"]["resourceVersion"])
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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_SECONDS)
        url = f"{self._connection.server}/api/v1/pods"
        async with self._connection.session.get(url, params=params, timeout=timeout) as response:
            if response.status == 410:
                raise Gone("the version is too old")
            response.raise_for_status()
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


class JobLists:
    """Client middleware of kopf's session: calls `listed` with the uids of each complete list of jobs.

    Kopf lists again when the API server no longer has the version that it watches from, and reports the objects that
    are there: without this the jobs that were deleted meanwhile would stay in the cache for ever.
    """

    def __init__(self, listed: Callable[[set[str]], None]) -> None:
        self._listed = listed
        self._uids: set[str] = set()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request, and reads the answer where it is a chunk of a list of jobs."""
        response = await handler(request)
        if verb_and_resource(request) == ("list", PLURAL) and response.status == 200:
            if "continue" not in request.url.query:
                self._uids = set()
            answer = json.loads(await response.read())
            self._uids |= {job["metadata"]["uid"] for job in answer["items"]}
            if not answer["metadata"].get("continue"):
                self._listed(self._uids)
        return response
