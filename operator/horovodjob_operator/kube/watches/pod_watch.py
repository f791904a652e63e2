"""The watch of the pods of jobs."""

from collections.abc import Callable, Mapping
from typing import Any

from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import pods_path
from horovodjob_operator.kube.watches.object_watch import ObjectWatch


class PodWatch(ObjectWatch):
    """Watches the pods of one namespace, or of all."""

    def __init__(
        self,
        client: ApiClient,
        *,
        updated: Callable[[Mapping[str, Any]], None],
        deleted: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        timeout_seconds: int,
        namespace: str = "",
    ) -> None:
        super().__init__(
            client,
            pods_path(namespace),
            "pod",
            updated=updated,
            deleted=deleted,
            listed=listed,
            timeout_seconds=timeout_seconds,
            namespace=namespace,
        )
