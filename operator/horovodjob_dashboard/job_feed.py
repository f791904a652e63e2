"""The jobs of a cluster or of a namespace as one watch keeps them, for all viewers who may list and watch them."""

import asyncio
import contextlib
import json
import threading
import time
import zlib
from collections.abc import Iterable
from contextvars import copy_context
from typing import Any

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import SYNCED, changes
from horovodjob.client.errors import translated
from horovodjob.client.jobs.job_times import current_time
from horovodjob_dashboard.job_rows import JobRow, Page, Selection, page, row

Object = dict[str, Any]
Key = tuple[str, str]
REFUSED = (401, 403)
KEPT_PAGES = 256
# Pages learn of changes at most this often: a browser that draws more often shows nothing more.
SECONDS_BETWEEN_VERSIONS = 0.5


class JobFeed:
    """One watch, in a thread. Pages read `rows` and each `job`, and wait for their next version.

    The versions of all jobs have an interval. All pages learn of a version at the same time, and those with the same
    filters and order share the rows that were selected for it.

    `namespace` limits it to one namespace; empty: all. The watch is made with the client of one of the viewers, and
    with that of another one when the first leaves or the API server refuses it. Without viewers, it ends.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.rows: dict[Key, JobRow] = {}
        self.unobserved: dict[Key, Object] = {}
        """The jobs whose last change no operator has observed yet."""
        self.error = ""
        """Why the watch ended, as a sentence."""
        self.is_synced = False
        self._packed: dict[Key, bytes] = {}
        self._clients: dict[Any, float] = {}
        self._watching: tuple[Any, Any] = (None, None)
        self._versions: dict[Key, int] = {}
        # Larger than any version of an earlier feed, which a page may still wait for.
        self._version = self._last_version = time.time_ns() // 1_000_000
        self._published_at = 0.0
        self._selected: dict[Selection, Page] = {}
        self._changed = asyncio.Condition()

    def join(self, client: Any) -> None:
        """Adds a viewer's client, which may list and watch the jobs, or notes that it is still used."""
        self._clients[client] = time.monotonic()

    def leave(self, client: Any) -> None:
        """Removes a viewer's client; its watch is ended."""
        self._clients.pop(client, None)
        user, response = self._watching
        if user is client:
            _end(response)

    def leave_unused(self, seconds: float) -> None:
        """Removes the clients that have not joined for so long."""
        for client, joined in list(self._clients.items()):
            if time.monotonic() - joined > seconds:
                self.leave(client)

    @property
    def is_over(self) -> bool:
        """Whether the watch has ended or is about to: nobody may join it."""
        return bool(self.error) or not self._clients

    def start(self) -> None:
        """Starts the watch; changes arrive in the running event loop."""
        loop = asyncio.get_running_loop()

        def deliver(changes: list[tuple[str, Object]]) -> None:
            asyncio.run_coroutine_threadsafe(self._apply(changes), loop).result()

        def watch() -> None:
            selection = kube.JOBS | ({"namespace": self.namespace} if self.namespace else {})
            try:
                with contextlib.suppress(RuntimeError, _NobodyLeft):  # the event loop has ended
                    first = True
                    listed: list[tuple[str, Object]] = []
                    for change in changes(self._request, selection, extract=_extract):
                        listed.append(change)
                        first = first and change[0] != SYNCED
                        if not first:  # the existing jobs are delivered at once
                            deliver(listed)
                            listed = []
            except Exception as error:
                deliver([("FAILED", {"message": str(translated(error) or error)})])

        threading.Thread(target=copy_context().run, args=(watch,), name="jobs", daemon=True).start()

    def job(self, key: Key) -> Object | None:
        """The job as the API server has it, if there is one."""
        packed = self._packed.get(key)
        return None if packed is None else dict(json.loads(zlib.decompress(packed)))

    def version(self, key: Key | None = None) -> int:
        """The version of a job, or of all jobs; it grows with each change."""
        return self._version if key is None else self._versions.get(key, 0)

    async def wait_for_change(self, since: int, key: Key | None = None) -> int:
        """The next version after `since`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version(key) > since)
        return self.version(key)

    def page(self, selection: Selection) -> Page:
        """The rows of a selection in the present version."""
        if selection not in self._selected:
            if len(self._selected) == KEPT_PAGES:
                self._selected.clear()
            self._selected[selection] = page(self.rows.values(), selection, current_time())
        return self._selected[selection]

    def _request(self, **options: Any) -> Any:
        """Lists or watches with the first client that the API server does not refuse. Raises its last refusal."""
        from kubernetes.client import ApiException, CustomObjectsApi

        refusal: ApiException | None = None
        while (client := next(iter(tuple(self._clients)), None)) is not None:
            custom = CustomObjectsApi(client)
            method = custom.list_namespaced_custom_object if self.namespace else custom.list_cluster_custom_object
            try:
                response = method(**options)
                if response.status in REFUSED:
                    raise ApiException(http_resp=response)
            except ApiException as error:
                if error.status not in REFUSED:
                    raise
                refusal = error
                self._clients.pop(client, None)
                continue
            if not options.get("watch"):
                return response
            self._watching = client, response
            if client in self._clients:
                return response
            _end(response)  # the viewer has left in the meantime
        raise refusal or _NobodyLeft

    async def _apply(self, changes: Iterable[tuple[str, Object]]) -> None:
        is_waiting = self._last_version > self._version
        for change, job in changes:
            self._last_version += 1
            if change == "FAILED":
                self.error = job["message"]
            elif change == SYNCED:
                self.is_synced, self.error = True, ""
            else:
                key = (job["metadata"]["namespace"], job["metadata"]["name"])
                self._versions[key] = self._last_version
                self.unobserved.pop(key, None)
                if change == "DELETED":
                    self._packed.pop(key, None)
                    self.rows.pop(key, None)
                else:
                    self._packed[key], self.rows[key] = job["packed"], job["row"]
                    if job["unobserved"]:
                        self.unobserved[key] = job["unobserved"]
        if not is_waiting:
            pause = self._published_at + SECONDS_BETWEEN_VERSIONS - time.monotonic()
            asyncio.get_running_loop().call_later(pause, lambda: asyncio.ensure_future(self._publish()))

    async def _publish(self) -> None:
        """Makes all changes until now the next version."""
        self._version, self._published_at = self._last_version, time.monotonic()
        self._selected.clear()
        async with self._changed:
            self._changed.notify_all()


class _NobodyLeft(Exception):
    """All viewers have left."""


def _extract(job: Object) -> Object:
    """What the feed keeps of a job. As Python's objects, the curves of thousands of jobs would fill the memory."""
    metadata = job["metadata"]
    is_observed = (job.get("status") or {}).get("observedGeneration", -1) >= metadata.get("generation", 1)
    return {
        "metadata": {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")},
        "row": row(job),
        "packed": zlib.compress(json.dumps(job).encode(), level=1),
        "unobserved": None if is_observed else job,
    }


def _end(response: Any) -> None:
    """Ends a response that another thread reads."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        response.shutdown()
