"""The order of the examples: the rows that a rank reads in its steps. It depends only on the seed and the position."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
RUNS_PER_WINDOW = 32  # the examples of a window come from about so many places of the shards of a rank
BLOCK_ROWS = 8192  # rows of a rank that are sampled at once, so that Python code runs once for many steps


def step_rows(position: int, *, samples: int, batch: int, rank: int, size: int, seed: int) -> Rows:
    """Rows of `rank` in the step before which the whole job has consumed `position` examples.

    The job reads an infinite sequence of random permutations of all rows, from which the ranks take turns to read a
    batch. No row is dropped, no two ranks read the same row of a permutation, and N ranks read the rows in a step that
    one rank with N times the batch size would read.
    """
    first = position + rank * batch
    return rows_at_positions(np.arange(first, first + batch), samples=samples, seed=seed)


def rows_at_positions(positions: Rows, *, samples: int, seed: int) -> Rows:
    """Rows at these positions, an array of any shape, in the infinite sequence."""
    rows = np.empty(positions.shape, dtype=np.int64)
    passes, offsets = np.divmod(positions, samples)
    for number in range(int(passes.min()), int(passes.max()) + 1):
        in_pass = passes == number
        rows[in_pass] = _permutation(samples, seed, number)[offsets[in_pass]]
    return rows


_permutation_cache: dict[tuple[int, int, int], Rows] = {}


def _permutation(samples: int, seed: int, number: int) -> Rows:
    key = (samples, seed, number)
    permutation = _permutation_cache.get(key)
    if permutation is None:
        while len(_permutation_cache) >= 4:
            _permutation_cache.pop(next(iter(_permutation_cache)), None)
        _permutation_cache[key] = permutation = np.random.default_rng((seed, number)).permutation(samples)
    return permutation


def split_rows(
    samples: int, *, share: float, seed: int, labels: npt.NDArray[np.int64] | None = None
) -> tuple[Rows, Rows]:
    """Training rows and test rows in increasing order, the same on every rank and in every attempt.

    With labels, the share applies to each class, and each class keeps at least one training row.
    """
    groups = [np.arange(samples)] if labels is None else [np.flatnonzero(labels == each) for each in np.unique(labels)]
    test: list[Rows] = []
    for number, rows in enumerate(groups):
        count = min(round(share * len(rows)), len(rows) - 1)
        test.append(np.random.default_rng((seed, number)).permutation(rows)[:count])
    selected = np.sort(np.concatenate(test))
    if not len(selected) and samples > 1:  # the share of each class is less than one row
        selected = np.array([samples - 1])
    return np.setdiff1d(np.arange(samples), selected), selected


@dataclass(frozen=True, slots=True)
class Window:
    """The number of examples in each shard, in the order of the rows, and the examples of a rank in its window."""

    shards: tuple[int, ...]
    examples: int


class WindowOrder:
    """The infinite sequence of a job: each pass has every row once.

    The ranks take turns to read a batch of the sequence, as in the exact order. Each pass belongs to a number of
    streams, the number of ranks at its beginning, and batch k of the sequence is a batch of stream k modulo their
    number. A stream gets an equal share of the shuffled shards of the pass, cuts it into runs, shuffles the runs and
    shuffles the rows within windows. With as many ranks as streams, each rank reads one stream. With another number,
    the sequence remains the same. `streams` is that of the pass with the first `position`; later passes have `size`.
    """

    def __init__(self, window: Window, *, seed: int, batch: int, size: int, position: int, streams: int) -> None:
        self.shards, self.seed, self.batch = np.array(window.shards, np.int64), seed, batch
        self.samples = int(self.shards.sum())
        self.window_batches = max(1, round(window.examples / batch))
        self.run = max(1, self.window_batches * batch // RUNS_PER_WINDOW)
        self.size, self.first_pass, self.first_streams = size, position // self.samples, streams
        self._streams: dict[tuple[int, int], Rows] = {}

    def rows(self, positions: Rows) -> Rows:
        """Rows at these positions, an array of any shape."""
        rows = np.empty(positions.shape, np.int64)
        passes = positions // self.samples
        for number in range(int(passes.min()), int(passes.max()) + 1):
            streams = self._stream_count(number)
            stream_of = positions // self.batch % streams
            for stream in np.unique(stream_of[passes == number]).tolist():
                selected = (passes == number) & (stream_of == stream)
                first = self._rows_before(number * self.samples, stream, streams)
                offsets = self._rows_before(positions[selected], stream, streams) - first
                rows[selected] = self._stream(number, stream, streams)[offsets]
        return rows

    def steps_to_window_end(self, position: int) -> int:
        """Number of steps from this position, the first of a batch, to the end of the window of its stream."""
        streams = self._stream_count(position // self.samples)
        return self.window_batches - position // self.batch // streams % self.window_batches

    def _stream_count(self, number: int) -> int:
        return self.first_streams if number == self.first_pass else self.size

    def _rows_before(self, position: Rows | int, stream: Rows | int, streams: int) -> Rows:
        """Number of positions of the stream before this position."""
        turns, inside = np.divmod(position, self.batch * streams)
        return np.asarray(turns * self.batch + np.clip(inside - np.asarray(stream) * self.batch, 0, self.batch))

    def _stream(self, number: int, stream: int, streams: int) -> Rows:
        """The rows of a stream in a pass."""
        if (number, stream) not in self._streams:
            self._streams = {key: rows for key, rows in self._streams.items() if key[0] >= number - 1}
            start, end = number * self.samples, (number + 1) * self.samples
            every = np.arange(streams)
            counts = self._rows_before(end, every, streams) - self._rows_before(start, every, streams)
            first = int(counts[:stream].sum())
            rows = self._share(number, first, first + int(counts[stream]), (self.seed, number, stream, streams))
            before = int(self._rows_before(start, stream, streams))
            windows = (before + np.arange(len(rows))) // (self.window_batches * self.batch)
            keys = windows + np.random.default_rng((self.seed, number, stream)).random(len(rows))
            self._streams[number, stream] = rows[np.argsort(keys, kind="stable")]
        return self._streams[number, stream]

    def _share(self, number: int, first: int, last: int, seed: tuple[int, ...]) -> Rows:
        """Rows `first` to `last` of the shuffled shards of a pass, in shuffled runs."""
        order = np.random.default_rng((self.seed, number)).permutation(len(self.shards))
        ends = np.cumsum(self.shards[order])
        begins = ends - self.shards[order]
        rows_before = (np.cumsum(self.shards) - self.shards)[order]
        runs: list[Rows] = [np.empty(0, np.int64)]
        for index in np.flatnonzero((ends > first) & (begins < last)):
            start, end = max(first, int(begins[index])), min(last, int(ends[index]))
            offset = int(rows_before[index] - begins[index])
            rows = np.arange(start + offset, end + offset)
            runs += [rows[at : at + self.run] for at in range(0, len(rows), self.run)]
        shuffled = np.random.default_rng(seed).permutation(len(runs))
        return np.concatenate([runs[index] for index in shuffled])


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
