"""The queue of the row `queued`: the real Kueue, beside the control plane of the row."""

import contextlib
from collections.abc import Iterator, Sequence

from fake_cluster import FakeCluster

from support.api_client import Api
from support.kueue.controller import Kueue
from support.kueue.queues import Queue


@contextlib.contextmanager
def queue_of(cluster: FakeCluster, namespace: str, workers: Sequence[int]) -> Iterator[Queue]:
    """A queue with room for jobs of these sizes, while Kueue runs."""
    api = Api(cluster.kubeconfig)
    kueue = Kueue(api, cluster.settings.pki, cluster.directory / "kueue")
    kueue.install()
    kueue.start(**kueue.with_framework())
    queue = Queue(api, namespace, *workers)
    queue.put("resourceflavors", "ResourceFlavor", f"{namespace}-spot", {})  # the fake nodes have no labels
    try:
        yield queue
    finally:
        kueue.kill()
