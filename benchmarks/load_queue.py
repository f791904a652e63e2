"""The queue of the rows `queued`: the real Kueue, beside the control plane of the row."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from fake_cluster import FakeCluster

from support.api_client import Api
from support.kueue.controller import Kueue
from support.kueue.queues import Queue

# By default, Kueue sends at most 50 requests a second.
UNLIMITED = {"clientConnection": {"qps": 2000, "burst": 4000}}


@contextlib.contextmanager
def queue_of(
    cluster: FakeCluster, namespace: str, workers: Sequence[int], settings: dict[str, Any]
) -> Iterator[tuple[Queue, Kueue]]:
    """A queue with room for jobs of these sizes, while Kueue runs with these settings."""
    api = Api(cluster.kubeconfig)
    kueue = Kueue(api, cluster.settings.pki, cluster.directory / "kueue")
    kueue.install()
    kueue.start(**kueue.with_framework() | settings)
    queue = Queue(api, namespace, *workers)
    queue.put("resourceflavors", "ResourceFlavor", f"{namespace}-spot", {})  # the fake nodes have no labels
    try:
        yield queue, kueue
    finally:
        kueue.kill()
