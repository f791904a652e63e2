"""The watch of objects of one kind: a list in chunks, then a watch; a list again if the watch missed events.

An optional watch does so only while a job needs it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pydantic_core

from horovodjob.api.constants import LABEL_JOB
from horovodjob_operator.errors import ClusterError, Gone, NotServed, Refused
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.retries import retry_delay_seconds

# The API server sends a bookmark every minute and ends a watch at its timeout. A watch that is silent for longer has
# lost its connection without an error.
BOOKMARK_SECONDS, TIMEOUT_TOLERANCE_SECONDS = 70, 5
log = logging.getLogger("horovodjob.watch")


@dataclass(frozen=True, slots=True)
class WatchHandlers:
    """What a watch calls: `updated` for each object that exists or changes, `deleted` for each deletion.

    It calls `listed` after a complete list, with the UIDs of the objects, the version of the list and the namespace.
    """

    updated: Callable[[Mapping[str, Any]], None]
    deleted: Callable[[Mapping[str, Any]], None]
    listed: Callable[[set[str], int, str], None]


class ObjectWatch:
    """Watches the objects at one path with some labels, by default those of jobs, in one namespace or in all."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        subject: str,
        handlers: WatchHandlers,
        *,
        timeout_seconds: int,
        namespace: str = "",
        label_selector: str = LABEL_JOB,
    ) -> None:
        self._client, self._handlers, self._timeout_seconds = client, handlers, timeout_seconds
        self._path, self._subject, self._label_selector = path, subject, label_selector
        self.namespace = namespace
        self.received_at = time.monotonic()
        self.has_listed = asyncio.Event()
        """Set when the API server has returned a complete list, or has refused it."""

    @property
    def alive_at(self) -> float:
        """When the watch last received data, by the monotonic clock."""
        return self.received_at

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        failures, outdated, reported = 0, 0, ""
        self.received_at = time.monotonic()
        while True:
            await self._wait_until_needed()
            try:
                version = await self._list()
                failures, reported = 0, ""
                while True:
                    version = await self._follow(version)
                    outdated = 0
            except (ClusterError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                text, level, is_news = str(error) or type(error).__name__, logging.INFO, True
                if isinstance(error, NotServed | Refused):
                    self.received_at = time.monotonic()
                    is_news = self._refused(error)
                    self.has_listed.set()
                if isinstance(error, Gone) and not isinstance(error, NotServed):
                    # An overloaded API server may refuse each watch at once; lists would add to its load.
                    outdated += 1
                    delay = watch_retry_seconds(outdated)
                else:
                    failures += 1
                    delay = watch_retry_seconds(failures)
                    # A namespace without rights for the operator is reported once, and not at each try.
                    level = logging.WARNING if is_news and text != reported else logging.DEBUG
                    reported = text if is_news else reported
                log.log(level, "%s watch: %s; listing again in %.1f s", self._subject, text, delay)
            await asyncio.sleep(delay)

    async def _wait_until_needed(self) -> None:
        """Returns when the objects are to be listed."""

    def _refused(self, error: ClusterError) -> bool:
        """The API server does not serve the objects, or not to the operator; returns whether that is to be reported."""
        return True

    async def _list(self) -> str:
        """Lists all objects, and returns the version of the list."""
        uids, version = set[str](), ""
        async for page in self._client.pages(self._path, {"labelSelector": self._label_selector}):
            self.received_at, version = time.monotonic(), str(page["metadata"]["resourceVersion"])
            for item in page["items"]:
                uids.add(item["metadata"]["uid"])
                self._handlers.updated(item)
        self._handlers.listed(uids, int(version), self.namespace)
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
            self.received_at = time.monotonic()
            while line := await response.content.readline():
                self.received_at = time.monotonic()
                event = pydantic_core.from_json(line, cache_strings="keys")
                if event["type"] == "ERROR":
                    raise Gone(event["object"].get("message") or "the watch failed")
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._handlers.deleted(event["object"])
                elif event["type"] != "BOOKMARK":
                    self._handlers.updated(event["object"])
        return version


class OptionalWatch(ObjectWatch):
    """Watches while a job needs it: `until_needed` waits for such a job, and returns whether it had to wait."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        subject: str,
        handlers: WatchHandlers,
        until_needed: Callable[[], Awaitable[bool]],
        *,
        timeout_seconds: int,
        namespace: str,
        label_selector: str = LABEL_JOB,
    ) -> None:
        super().__init__(
            client,
            path,
            subject,
            handlers,
            timeout_seconds=timeout_seconds,
            namespace=namespace,
            label_selector=label_selector,
        )
        self._until_needed, self._is_idle = until_needed, True

    @property
    def alive_at(self) -> float:
        """When the watch last received data, by the monotonic clock; now while no job needs it."""
        return time.monotonic() if self._is_idle else self.received_at

    async def _wait_until_needed(self) -> None:
        self._is_idle = True
        if await self._until_needed():
            self.received_at = time.monotonic()
        self._is_idle = False


def silence_seconds(timeout_seconds: int) -> int:
    """How long a watch with this timeout can be silent."""
    return min(BOOKMARK_SECONDS, timeout_seconds + TIMEOUT_TOLERANCE_SECONDS)


def keep_alive_seconds(timeout_seconds: int) -> int:
    """How long an idle connection can be used again; a new one costs a TLS handshake.

    When a watch with this timeout has been silent for too long, none is left that has become half-open with it. The API
    server closes them after 90 s.
    """
    return silence_seconds(timeout_seconds) - TIMEOUT_TOLERANCE_SECONDS


def watch_retry_seconds(failures: int) -> float:
    """Seconds until a list or watch is tried again after a number of failures in a row."""
    return retry_delay_seconds(failures, first=0.2, jitter=0.5)
