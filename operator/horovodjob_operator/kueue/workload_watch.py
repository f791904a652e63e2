"""The watch of the Workloads of jobs, which sends one request before a job has a queue."""

from collections.abc import Awaitable, Callable

from horovodjob_operator.errors import ClusterError, NotServed
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import workloads_path
from horovodjob_operator.kube.watches.object_watch import OptionalWatch, WatchHandlers
from horovodjob_operator.kueue.workload import API_VERSION

NOT_SERVED = f"this cluster does not serve Workloads of {API_VERSION}: install Kueue 0.15 or newer"
NO_RIGHT = "the operator may not watch the Workloads of Kueue: set kueue.enabled of its chart to true"


class WorkloadWatch(OptionalWatch):
    """Watches the Workloads of one namespace, or of all, while a job needs them.

    At first it looks whether there are any: a job can have left its queue while no operator ran. `unavailable` gets a
    sentence and the namespace if the API server does not permit the watch.
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
        super().__init__(
            client, path, "Workload", handlers, until_needed, timeout_seconds=timeout_seconds, namespace=namespace
        )
        self._unavailable = unavailable

    async def _wait_until_needed(self) -> None:
        if self.has_listed.is_set():
            await super()._wait_until_needed()
        self._is_idle = False

    def _refused(self, error: ClusterError) -> bool:
        if not self.has_listed.is_set():
            return False  # Perhaps no job needs it.
        self._unavailable(NOT_SERVED if isinstance(error, NotServed) else f"{NO_RIGHT} ({error})", self.namespace)
        return True
