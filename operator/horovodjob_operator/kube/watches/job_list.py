"""Lists of jobs that the watch does not report: finished ones, and those of a namespace that becomes selected."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from horovodjob.api.constants import FINISHED_FIELD
from horovodjob_operator.errors import ClusterError
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import jobs_path
from horovodjob_operator.kube.watches.object_watch import watch_retry_seconds

log = logging.getLogger("horovodjob.watch")


FINISHED = f"{FINISHED_FIELD}!="


class JobList:
    """Calls `updated` for each job that the field selector selects, and `listed` after a complete list.

    Nothing waits for these lists. One begins when `wait_for_reconciliations` returns: it occupies the API server, and
    finished jobs are many and seldom need work.
    """

    def __init__(
        self,
        client: ApiClient,
        field_selector: str,
        *,
        updated: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        wait_for_reconciliations: Callable[[], Awaitable[None]],
    ) -> None:
        self._client, self._field_selector, self._updated, self._listed = client, field_selector, updated, listed
        self._wait_for_reconciliations = wait_for_reconciliations
        self._namespaces: asyncio.Queue[str] = asyncio.Queue()

    def request(self, namespace: str) -> None:
        """Requests a list of one namespace, or of all."""
        self._namespaces.put_nowait(namespace)

    async def run(self) -> None:
        """Reads the requested lists until cancelled."""
        failures = 0
        while True:
            namespace = await self._namespaces.get()
            await self._wait_for_reconciliations()
            try:
                await self._list(namespace)
                failures = 0
            except (ClusterError, ValueError) as error:
                failures += 1
                delay = watch_retry_seconds(failures)
                log.warning("jobs cannot be listed: %s; trying again in %.1f s", error, delay)
                await asyncio.sleep(delay)
                self.request(namespace)

    async def _list(self, namespace: str) -> None:
        uids, version = set[str](), 0
        async for page in self._client.pages(jobs_path(namespace), {"fieldSelector": self._field_selector}):
            version = int(page["metadata"]["resourceVersion"])
            for job in page["items"]:
                uids.add(job["metadata"]["uid"])
                self._updated(job)
        self._listed(uids, version, namespace)
