"""The steps of one rank, and the rows that it reads in them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from horovodjob_trainer.data.order.sampling import Rows, rows_at_positions
from horovodjob_trainer.data.order.window import Window, WindowOrder

BLOCK_ROWS = 8192  # rows of a rank that are sampled at once, so that Python code runs once for many steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a rank from that before which the whole job has consumed `position` examples.

    Every row depends only on the seed and its position in the sequence of the job: a resumed run reads the rows of an
    uninterrupted run, and the ranks of a job together read those that one rank with their whole batch would read.

    With a window, the order of a pass also depends on `streams`, the number of ranks at its beginning, by default
    `size`.
    """

    batch: int
    seed: int
    rank: int = 0
    size: int = 1
    position: int = 0
    window: Window | None = None
    streams: int | None = None
    count: int | None = None  # of steps; by default without end

    def rows(self, samples: int) -> Any:
        """Elements (position, rows) of a source with so many examples, as a tf.data.Dataset.

        `position` is that of the first row in the sequence of the job.
        """
        return self.blocks(samples).unbatch()

    def blocks(self, samples: int) -> Any:
        """Blocks of the elements of `rows`. With a window, a block is a window."""
        import tensorflow as tf

        signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, self.batch), tf.int64))
        return tf.data.Dataset.from_generator(lambda: self._blocks(samples), output_signature=signature)

    def _blocks(self, samples: int) -> Iterator[tuple[Rows, Rows]]:
        order = None
        if self.window is not None:
            streams = self.streams or self.size
            order = WindowOrder(
                self.window,
                seed=self.seed,
                batch=self.batch,
                size=self.size,
                position=self.position,
                streams=streams,
            )
        first, job_batch = self.position + self.rank * self.batch, self.batch * self.size
        remaining = math.inf if self.count is None else self.count
        while remaining > 0:
            of_block = order.steps_to_window_end(first) if order else max(1, BLOCK_ROWS // self.batch)
            count = int(min(of_block, remaining))
            firsts = first + np.arange(count, dtype=np.int64) * job_batch
            positions = firsts[:, np.newaxis] + np.arange(self.batch)
            yield (
                firsts,
                order.rows(positions) if order else rows_at_positions(positions, samples=samples, seed=self.seed),
            )
            first += count * job_batch
            remaining -= count
