"""The watch of objects of one kind: a list in chunks, then a watch; a list again if the watch missed events."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from horovodjob.api.constants import LABEL_JOB
from horovodjob_operator.errors import ClusterError, Gone, NotServed, Refused
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.watches.watch_timing import silence_seconds, watch_retry_seconds

log = logging.getLogger("horovodjob.watch")


class ObjectWatch:
    """Calls `updated` for each object that exists or changes, `deleted` for each deletion, `listed` after a full list.

    It watches the objects of one kind with some labels, by default those of jobs, in one namespace or in all.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        subject: str,
        *,
        updated: Callable[[Mapping[str, Any]], None],
        deleted: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        timeout_seconds: int,
        namespace: str = "",
        label_selector: str = LABEL_JOB,
    ) -> None:
        self._client, self._updated, self._deleted, self._listed = client, updated, deleted, listed
        self._timeout_seconds = timeout_seconds
        self.namespace = namespace
        self._path, self._subject, self._label_selector = path, subject, label_selector
        self.alive_at = time.monotonic()
        self.has_listed = asyncio.Event()
        """Set when the API server has returned a complete list, or has refused it."""

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        failures, outdated, reported = 0, 0, ""
        self.alive_at = time.monotonic()
        while True:
            await self._wait_until_needed()
            try:
                version = await self._list()
                failures, reported = 0, ""
                while True:
                    version = await self._follow(version)
                    outdated = 0
            except (NotServed, Refused) as error:
                failures += 1
                delay = watch_retry_seconds(failures)
                self.alive_at = time.monotonic()
                self._refused(error)
                self.has_listed.set()
                # A namespace without rights for the operator is reported once, and not at each try.
                level = logging.DEBUG if str(error) == reported else logging.WARNING
                log.log(level, "%s watch: %s; listing again in %.1f s", self._subject, error, delay)
                reported = str(error)
            except Gone as error:
                # An overloaded API server may refuse each watch at once; lists would add to its load.
                outdated += 1
                delay = watch_retry_seconds(outdated)
                log.info("%s watch: %s; listing again in %.1f s", self._subject, error, delay)
            except (ClusterError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                failures += 1
                delay = watch_retry_seconds(failures)
                failure = str(error) or type(error).__name__
                level = logging.DEBUG if failure == reported else logging.WARNING
                log.log(level, "%s watch: %s; listing again in %.1f s", self._subject, failure, delay)
                reported = failure
            await asyncio.sleep(delay)

    async def _wait_until_needed(self) -> None:
        """Returns when the objects are to be listed."""

    def _refused(self, error: ClusterError) -> None:
        """The API server does not serve the objects, or not to the operator."""

    async def _list(self) -> str:
        """Lists all objects, and returns the version of the list."""
        uids, version = set[str](), ""
        async for page in self._client.pages(self._path, {"labelSelector": self._label_selector}):
            self.alive_at, version = time.monotonic(), str(page["metadata"]["resourceVersion"])
            for item in page["items"]:
                uids.add(item["metadata"]["uid"])
                self._updated(item)
        self._listed(uids, int(version), self.namespace)
        self.has_listed.set()
        return version

    async def _follow(self, version: str) -> str:
        """Watches from a version, and returns the version of the last event. Raises Gone if a list is necessary."""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "labelSelector": self._label_selector,
            "resourceVersion": version,
            "timeoutSeconds": str(self._timeout_seconds),
        }
        silence = silence_seconds(self._timeout_seconds)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        url = f"{self._client.server}{self._path}"
        async with self._client.session.get(url, params=params, timeout=timeout) as response:
            if response.status == 410:
                raise Gone("the API server no longer has this version")
            response.raise_for_status()
            self.alive_at = time.monotonic()
            while line := await response.content.readline():
                self.alive_at = time.monotonic()
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Gone(event["object"].get("message") or "the watch failed")
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._deleted(event["object"])
                elif event["type"] != "BOOKMARK":
                    self._updated(event["object"])
        return version
