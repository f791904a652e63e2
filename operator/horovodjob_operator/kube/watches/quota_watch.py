"""The watch of ResourceQuotas, which sends no request before a job has waited for one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import resource_quotas_path
from horovodjob_operator.kube.watches.object_watch import WatchHandlers
from horovodjob_operator.kube.watches.optional_watch import OptionalWatch


class QuotaWatch(OptionalWatch):
    """Calls `changed` for each change of a ResourceQuota of one namespace, or of all; the first wait starts it.

    It only says that something has changed: what is used is read after the change, so that it contains the pods that
    the operator has created. Without the right to watch, jobs that wait for a quota try at times.
    """

    def __init__(
        self,
        client: ApiClient,
        changed: Callable[[Mapping[str, Any]], None],
        until_needed: Callable[[], Awaitable[bool]],
        *,
        timeout_seconds: int,
        namespace: str,
    ) -> None:
        super().__init__(
            client,
            resource_quotas_path(namespace),
            "ResourceQuota",
            WatchHandlers(changed, changed, lambda *_: None),
            until_needed,
            timeout_seconds=timeout_seconds,
            namespace=namespace,
            label_selector="",
        )
