"""Comparison of the batches of two sources, and data sets as the ranks of a job get them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from horovodjob_trainer import data


def assert_equal(batches: Any, others: Any) -> None:
    """Check that both have the same examples and labels, in the same order."""
    for batch, other in zip(batches, others, strict=True):
        for values, expected in zip(batch, other, strict=True):
            np.testing.assert_array_equal(values, expected)


def on_ranks(load: Callable[[data.Ranks], Any], count: int) -> list[Any]:
    """What this number of ranks on one node, which are threads, load together."""
    barrier, values = threading.Barrier(count), [None] * count

    def loaded(rank: int) -> Any:
        def allgather(value: Any) -> list[Any]:
            values[rank] = value
            barrier.wait(timeout=60)
            found = list(values)
            barrier.wait(timeout=60)
            return found

        return load(data.Ranks(rank, count, rank == 0, allgather, lambda value: allgather(value)[0]))

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(loaded, range(count)))
