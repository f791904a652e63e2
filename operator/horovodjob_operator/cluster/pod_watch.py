"""The watch of the jobs' pods: listed in chunks, then followed for ever; what was missed is listed again."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from horovodjob.api.constants import LABEL_JOB
from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.errors import ClusterError, Gone, Refused

CHUNK = "500"
# The API server sends a bookmark each minute, and ends a watch in time: a stream that is silent for longer is dead and
# does not know it.
SILENCE_SECONDS, LATE_SECONDS = 70, 5
log = logging.getLogger("horovodjob.watch")


def silence_seconds(timeout_seconds: int) -> int:
    """How long a watch that is to end after `timeout_seconds` may be silent."""
    return min(SILENCE_SECONDS, timeout_seconds + LATE_SECONDS)


def retry_delay(times: int) -> float:
    """Seconds until the next try after so many failures in a row."""
    return min(30.0, 0.2 * 2.0 ** min(times, 10)) * random.uniform(0.5, 1)


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
                delay = retry_delay(outdated)
                log.info("pod watch: %s; listing again in %.1f s", error, delay)
            except (ClusterError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                failures += 1
                delay = retry_delay(failures)
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
