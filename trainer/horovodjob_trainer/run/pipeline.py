"""The input of a rank as tf.data: its examples of each step, augmented, ready before the step asks for them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer.data.example_reader import explained, mapped
from horovodjob_trainer.data.sampling import Rows, sequence
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.run.augmentation import Augmentation, augmented

__all__ = ["evaluation_batches", "explained", "training_batches"]

BLOCK_ROWS = 8192  # of a rank, put in order at once: Python runs once for many steps
READY_BATCHES = 4


def training_batches(
    source: Source,
    *,
    batch: int,
    rank: int,
    size: int,
    seed: int,
    position: int = 0,
    augment: Augmentation | None = None,
    threads: int = 2,
    steps: int | None = None,
) -> Any:
    """tf.data.Dataset of (examples, labels) for one rank, each a batch of the step before which the whole job had
    consumed `position` examples, and so on; endless unless `steps` are given.

    Examples are float32, pictures in 0..1. Every value follows from the seed and its place in the job's sequence:
    a run that goes on sees what it would have seen, on any number of threads, and the ranks of a job see what one
    rank with all their examples would.
    """
    changes = augment is not None and augment.changes and source.images

    def prepared(first: Any, rows: Any) -> tuple[Any, Any]:
        examples, labels = _read(source, rows, batch)
        if augment is not None and changes:
            examples = augmented(examples, first, seed=seed, augmentation=augment)
        return examples, labels

    def blocks() -> Iterator[tuple[Rows, Rows]]:
        steps_of_block = max(1, BLOCK_ROWS // batch)
        first = position + rank * batch
        while True:
            firsts = first + np.arange(steps_of_block, dtype=np.int64) * (batch * size)
            yield firsts, sequence(firsts[:, np.newaxis] + np.arange(batch), samples=source.samples, seed=seed)
            first += steps_of_block * batch * size

    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, batch), tf.int64))
    order = tf.data.Dataset.from_generator(blocks, output_signature=signature).unbatch()
    if steps is not None:
        order = order.take(steps)
    return _on(threads, mapped(order, prepared, threads).prefetch(READY_BATCHES))


def evaluation_batches(source: Source, *, batch: int, rank: int = 0, size: int = 1, threads: int = 2) -> Any:
    """tf.data.Dataset of this rank's (examples, labels): every size-th example, so that all ranks see each once.

    What is slow to read is kept in memory where the source says that it fits: use one dataset for all evaluations.
    """
    rows = tf.data.Dataset.range(rank, source.samples, size).batch(batch)
    read = mapped(rows, source.tensors, threads)
    if source.keep:
        read = read.cache()
    batches = mapped(read, lambda examples, labels: _shaped(source, examples, labels, None), threads)
    return _on(threads, batches.prefetch(READY_BATCHES))


def _read(source: Source, rows: Any, batch: int) -> tuple[Any, Any]:
    examples, labels = source.tensors(rows)
    return _shaped(source, examples, labels, batch)


def _shaped(source: Source, examples: Any, labels: Any, batch: int | None) -> tuple[Any, Any]:
    examples = tf.cast(examples, tf.float32)
    if source.images:
        examples = examples * np.float32(1 / 255)
    return tf.ensure_shape(examples, (batch, *source.shape)), labels


def _on(threads: int, data: Any) -> Any:
    """The dataset on threads of its own: those of the step never wait behind it."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    options.deterministic = True
    return data.with_options(options)
