"""The watch of the Workloads of jobs, which sends no request before a job has a queue."""

import time
from collections.abc import Awaitable, Callable

from horovodjob_operator.domain.queues.workload import API_VERSION
from horovodjob_operator.errors import ClusterError, NotServed
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import workloads_path
from horovodjob_operator.kube.watches.object_watch import ObjectWatch, WatchHandlers

NOT_SERVED = f"this cluster does not serve Workloads of {API_VERSION}: install Kueue 0.15 or newer"
NO_RIGHT = "the operator may not watch the Workloads of Kueue: set kueue.enabled of its chart to true"


class WorkloadWatch(ObjectWatch):
    """Watches the Workloads of one namespace, or of all, while a job needs them: `until_needed` waits for such a job.

    That function returns whether it had to wait. `unavailable` gets a sentence and the namespace if the API server does
    not permit the watch.
    """

    def __init__(
        self,
        client: ApiClient,
        handlers: WatchHandlers,
        unavailable: Callable[[str, str], None],
        until_needed: Callable[[], Awaitable[bool]],
        *,
        timeout_seconds: int,
        namespace: str,
    ) -> None:
        path = workloads_path(namespace)
        super().__init__(client, path, "Workload", handlers, timeout_seconds=timeout_seconds, namespace=namespace)
        self._unavailable, self._until_needed = unavailable, until_needed
        self._is_idle = True

    @property
    def alive_at(self) -> float:
        """When the watch last received data, by the monotonic clock; now while no job needs it."""
        return time.monotonic() if self._is_idle else self.received_at

    async def _wait_until_needed(self) -> None:
        self._is_idle = True
        if await self._until_needed():
            self.received_at = time.monotonic()
        self._is_idle = False

    def _refused(self, error: ClusterError) -> None:
        self._unavailable(NOT_SERVED if isinstance(error, NotServed) else f"{NO_RIGHT} ({error})", self.namespace)
