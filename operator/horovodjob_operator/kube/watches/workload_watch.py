"""The watch of the Workloads of jobs, which sends no request before a job has a queue."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from horovodjob_operator.domain.queues.workload import API_VERSION
from horovodjob_operator.errors import ClusterError, NotServed
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import workloads_path
from horovodjob_operator.kube.watches.object_watch import ObjectWatch

NOT_SERVED = f"this cluster does not serve Workloads of {API_VERSION}: install Kueue 0.15 or newer"
NO_RIGHT = "the operator may not watch the Workloads of Kueue: set kueue.enabled of its chart to true"


class WorkloadWatch(ObjectWatch):
    """Watches the Workloads of one namespace, or of all, while a job needs them."""

    def __init__(
        self,
        client: ApiClient,
        *,
        updated: Callable[[Mapping[str, Any]], None],
        deleted: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        unavailable: Callable[[str, str], None],
        is_needed: Callable[[], bool],
        timeout_seconds: int,
        namespace: str = "",
    ) -> None:
        super().__init__(
            client,
            workloads_path(namespace),
            "Workload",
            updated=updated,
            deleted=deleted,
            listed=listed,
            timeout_seconds=timeout_seconds,
            namespace=namespace,
        )
        self._unavailable, self._is_needed = unavailable, is_needed
        self._requested = asyncio.Event()
        self._is_idle = True

    def request(self) -> None:
        """Starts the watch, if it does not run: a job has a queue."""
        self._requested.set()

    @property
    def active_at(self) -> float:
        """When the watch last received data, by the monotonic clock; now while no job needs it."""
        return time.monotonic() if self._is_idle else self.alive_at

    async def _wait_until_needed(self) -> None:
        while not self._is_needed():
            self._is_idle = True
            self._requested.clear()
            await self._requested.wait()
        if self._is_idle:
            self._is_idle, self.alive_at = False, time.monotonic()

    def _refused(self, error: ClusterError) -> None:
        self._unavailable(NOT_SERVED if isinstance(error, NotServed) else f"{NO_RIGHT} ({error})", self.namespace)


class WorkloadWatches:
    """The watches of all namespaces of the operator."""

    def __init__(
        self,
        client: ApiClient,
        namespaces: Iterable[str],
        *,
        updated: Callable[[Mapping[str, Any]], None],
        deleted: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        unavailable: Callable[[str, str], None],
        is_needed: Callable[[], bool],
        timeout_seconds: int,
    ) -> None:
        self._watches = [
            WorkloadWatch(
                client,
                updated=updated,
                deleted=deleted,
                listed=listed,
                unavailable=unavailable,
                is_needed=is_needed,
                timeout_seconds=timeout_seconds,
                namespace=namespace,
            )
            for namespace in namespaces
        ]

    @property
    def active_at(self) -> float:
        """When the watch that has been silent for longest received data, by the monotonic clock."""
        return min(watch.active_at for watch in self._watches)

    def request(self) -> None:
        """Starts the watches: a job has a queue."""
        for watch in self._watches:
            watch.request()

    async def run(self) -> None:
        """Watches until cancelled, as soon as the watches are requested."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
