"""A cache of decoded images in memory, once for all ranks of a node."""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.arrays import Arrays
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.reading.aligned_memory import ALIGNMENT_BYTES
from horovodjob_trainer.data.reading.example_reader import data_error, with_private_threads
from horovodjob_trainer.data.source import Source

BATCH = 64
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Memory of this node. This rank is number `index` of the `count` ranks that share it."""

    content: Bytes
    index: int
    count: int


@dataclass(frozen=True, eq=False)
class CachedExamples(Arrays):
    """The examples of a source in memory, with their names."""

    source: Source | None = None

    def name(self, row: int) -> str:
        return self.source.name(row) if self.source else super().name(row)


def cache_bytes(sources: Sequence[Source]) -> int:
    """Memory in bytes that the examples and labels of these sources take."""
    return sum(_aligned(size) for source in sources for size in _sizes(source))


def share_memory(size: int, ranks: Ranks) -> SharedMemory | None:
    """Memory that all ranks of this node share, from the first one whose `size` is not 0. Every rank calls it.

    None if the first rank of this node passes 0, or if a rank of this node cannot open the memory of another process.
    """
    # A memfd is in no file system: the size of /dev/shm does not limit it, jobs cannot collide, and the kernel frees
    # it when its last process has ended, however it ended. The control group of the container counts it.
    nodes = ranks.allgather(_node())
    index, members = nodes[: ranks.rank].count(nodes[ranks.rank]), nodes.count(nodes[ranks.rank])
    descriptor = os.memfd_create("horovodjob-images") if size and not index else -1
    if descriptor >= 0:
        os.ftruncate(descriptor, size)
    owners = ranks.allgather((os.getpid(), descriptor, size))
    owner, number, size = owners[nodes.index(nodes[ranks.rank])]
    content = _map(f"/proc/{owner}/fd/{number}", size) if number >= 0 else None
    outcomes = ranks.allgather((nodes[ranks.rank], content is not None))  # the owner waits for all to open it
    if descriptor >= 0:
        os.close(descriptor)
    if content is None or (nodes[ranks.rank], False) in outcomes:
        return None
    return SharedMemory(content, index, members)


def load_into_memory(sources: Sequence[Source], memory: SharedMemory, *, threads: int) -> list[Arrays]:
    """The same examples in shared memory, of which this rank reads its part. Raises DataError.

    They are complete when all ranks of the node have returned.
    """
    parts: list[Arrays] = []
    start = 0
    for source in sources:
        image_bytes, label_bytes = _sizes(source)
        images = memory.content[start : start + image_bytes].reshape(source.samples, *source.shape)
        start += _aligned(image_bytes)
        labels = memory.content[start : start + label_bytes].view(np.int64)
        start += _aligned(label_bytes)
        arrays = CachedExamples(images, labels, source.classes, source.class_names, source.fingerprint, source)
        _fill(source, arrays, memory, threads)
        parts.append(arrays)
    return parts


def _fill(source: Source, arrays: Arrays, memory: SharedMemory, threads: int) -> None:
    import tensorflow as tf

    start, end = (source.samples * number // memory.count for number in (memory.index, memory.index + 1))
    rows = tf.data.Dataset.range(start, end).batch(BATCH).map(lambda rows: (tf.constant(0, tf.int64), rows))
    batches = source.batches(rows, batch=BATCH, threads=threads).prefetch(2)
    try:
        for _, images, labels in with_private_threads(batches, threads + source.readers):
            end = start + len(labels)
            arrays.examples[start:end], arrays.labels[start:end] = images, labels
            start = end
    except tf.errors.OpError as error:
        raise data_error(error, source) or error from error


def _map(path: str, size: int) -> Bytes | None:
    try:
        with open(path, "r+b") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
    except OSError:  # a sandbox can forbid it
        return None


def _node() -> tuple[str, int]:
    """Equal for processes that can open the descriptors of each other: a machine and a namespace of processes."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(), os.stat("/proc/self/ns/pid").st_ino


def _sizes(source: Source) -> tuple[int, int]:
    return source.samples * int(np.prod(source.shape)), source.samples * np.dtype(np.int64).itemsize


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
