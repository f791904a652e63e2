"""The windowed order of examples in shards: nearly random, but read sequentially. A function of seed and position."""

from dataclasses import dataclass

import numpy as np

from horovodjob_trainer.data.order.sampling import Rows

RUNS_PER_WINDOW = 32  # the examples of a window come from about so many places of the shards of a rank


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
