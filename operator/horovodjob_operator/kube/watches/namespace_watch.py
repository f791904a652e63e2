"""The watch of the namespaces that their labels select."""

from collections.abc import Callable, Mapping
from typing import Any

from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.object_paths import NAMESPACES_PATH
from horovodjob_operator.kube.watches.object_watch import ObjectWatch


class NamespaceWatch(ObjectWatch):
    """Watches namespaces. The API server reports one that loses the labels as deleted."""

    def __init__(
        self,
        client: ApiClient,
        label_selector: str,
        *,
        updated: Callable[[Mapping[str, Any]], None],
        deleted: Callable[[Mapping[str, Any]], None],
        listed: Callable[[set[str], int, str], None],
        timeout_seconds: int,
    ) -> None:
        super().__init__(
            client,
            NAMESPACES_PATH,
            "namespace",
            updated=updated,
            deleted=deleted,
            listed=listed,
            timeout_seconds=timeout_seconds,
            label_selector=label_selector,
        )
