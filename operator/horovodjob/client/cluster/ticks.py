"""An iterator of the cluster's changes that also gives its user control while nothing changes."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import Closed, Connections

Item = TypeVar("Item")
TICK_SECONDS = 1
QUEUED_ITEMS = 100
END = object()


def with_ticks(items: Callable[[], Iterator[Item]]) -> Iterator[Item | None]:
    """The items, which a thread reads, and None for each second without one. Raises the errors of the iterator."""
    connections = Connections(kube.client())
    news: queue.Queue[tuple[Any, Exception | None]] = queue.Queue(QUEUED_ITEMS)

    def put(item: Any, error: Exception | None = None) -> None:
        connections.check()
        news.put((item, error))

    def read() -> None:
        try:
            for item in items():
                put(item)
            put(END)
        except Closed:
            raise
        except Exception as error:
            put(END, error)

    connections.start(read)
    try:
        while True:
            try:
                item, error = news.get(timeout=TICK_SECONDS)
            except queue.Empty:
                yield None
                continue
            if error is not None:
                raise error
            if item is END:
                return
            yield item
    finally:
        connections.close()
        with contextlib.suppress(queue.Empty):  # room for the thread that waits for it
            while True:
                news.get_nowait()
        connections.join()
