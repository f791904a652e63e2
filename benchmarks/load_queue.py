"""The queue of the row `queued`: Kueue's controller, played in a process of its own."""

import contextlib
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from fake_cluster import FakeCluster

from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Api
from support.kueue import definitions as kueue_definitions
from support.kueue import played_kueue
from support.kueue.queues import Queue


@contextlib.contextmanager
def queue_of(cluster: FakeCluster, namespace: str, workers: Sequence[int]) -> Iterator[Queue]:
    """A queue with room for jobs of these sizes, while Kueue runs."""
    api = Api(cluster.kubeconfig)
    kueue_definitions.install_kueue(api)
    # Threads of this process would share an interpreter with what observes the jobs.
    played = multiprocessing.get_context("spawn").Process(
        target=play, args=(cluster.kubeconfig, cluster.directory), daemon=True
    )
    played.start()
    queue = Queue(api, namespace, *workers)
    queue.put("resourceflavors", "ResourceFlavor", f"{namespace}-spot", {})  # the fake nodes have no labels
    try:
        yield queue
    finally:
        played.kill()
        played.join()


def play(kubeconfig: Path, directory: Path) -> None:
    """Acts as Kueue until this process is killed."""
    cluster = cast(ControlPlane, SimpleNamespace(kubeconfig=kubeconfig, directory=directory))
    with played_kueue.PlayedKueue(Api(cluster.kubeconfig)) as kueue:
        kueue.wait()
