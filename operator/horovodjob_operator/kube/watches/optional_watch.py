"""A watch that sends no request before a job needs it."""

import time
from collections.abc import Awaitable, Callable

from horovodjob.api.constants import LABEL_JOB
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.watches.object_watch import ObjectWatch, WatchHandlers


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
