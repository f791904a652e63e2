"""The input pipeline of a rank: a tf.data.Dataset with the augmented examples of each step, prefetched."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer.data.example_reader import map_dataset
from horovodjob_trainer.data.sampling import Rows, rows_at_positions
from horovodjob_trainer.data.source import EncodedSource, Source
from horovodjob_trainer.data.window import Window, WindowOrder
from horovodjob_trainer.run.augmentation import Augmentation, augment_images

BLOCK_ROWS = 8192  # rows of a rank that are sampled at once, so that Python code runs once for many steps
PREFETCHED_BATCHES = 4


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
    window: Window | None = None,
    streams: int | None = None,
) -> Any:
    """Batches of (examples, labels) for one rank as a tf.data.Dataset, infinite unless `steps` is given.

    The first batch is that of the step before which the whole job has consumed `position` examples. Examples are
    float32, and images have values from 0 to 1. Every value depends only on the seed and its position in the sequence
    of the job: a resumed run gets the batches of an uninterrupted run, on any number of threads, and the ranks of a
    job together get the examples that one rank with their whole batch would get.

    With a window, the order of a pass also depends on `streams`, the number of ranks at its beginning, by default
    `size`. A source with encoded examples is then read a window at a time.
    """
    is_augmented = augment is not None and augment.is_active and source.images

    def prepare(first: Any, rows: Any, *contents: Any) -> tuple[Any, Any]:
        if contents and isinstance(source, EncodedSource):
            examples, labels = source.decode(rows, *contents)
        else:
            examples, labels = source.tensors(rows)
        examples, labels = _normalize(source, examples, labels, batch)
        if augment is not None and is_augmented:
            examples = augment_images(examples, first, seed=seed, augmentation=augment)
        return examples, labels

    order = window and WindowOrder(
        window, seed=seed, batch=batch, size=size, position=position, streams=streams or size
    )

    def blocks() -> Iterator[tuple[Rows, Rows]]:
        first = position + rank * batch
        while True:
            steps_of_block = order.steps_to_window_end(first) if order else max(1, BLOCK_ROWS // batch)
            firsts = first + np.arange(steps_of_block, dtype=np.int64) * (batch * size)
            positions = firsts[:, np.newaxis] + np.arange(batch)
            yield (
                firsts,
                order.rows(positions) if order else rows_at_positions(positions, samples=source.samples, seed=seed),
            )
            first += steps_of_block * batch * size

    signature = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, batch), tf.int64))
    rows = tf.data.Dataset.from_generator(blocks, output_signature=signature)
    if order and isinstance(source, EncodedSource):
        contents = source.contents
        rows = map_dataset(rows, lambda firsts, block: (firsts, block, contents(block)), None).prefetch(1)
    rows = rows.unbatch()
    if steps is not None:
        rows = rows.take(steps)
    return _with_private_threads(threads, map_dataset(rows, prepare, threads).prefetch(PREFETCHED_BATCHES))


def evaluation_batches(source: Source, *, batch: int, rank: int = 0, size: int = 1, threads: int = 2) -> Any:
    """Batches of (examples, labels) as a tf.data.Dataset: every size-th example, so that all ranks see each one once.

    If the source is slow to read and fits into memory, the first pass caches it: use one dataset for all evaluations.
    """
    rows = tf.data.Dataset.range(rank, source.samples, size).batch(batch)
    examples = map_dataset(rows, source.tensors, threads)
    if source.keep:
        examples = examples.cache()
    batches = map_dataset(examples, lambda values, labels: _normalize(source, values, labels, None), threads)
    return _with_private_threads(threads, batches.prefetch(PREFETCHED_BATCHES))


def _normalize(source: Source, examples: Any, labels: Any, batch: int | None) -> tuple[Any, Any]:
    examples = tf.cast(examples, tf.float32)
    if source.images:
        examples = examples * np.float32(1 / 255)
    return tf.ensure_shape(examples, (batch, *source.shape)), labels


def _with_private_threads(threads: int, data: Any) -> Any:
    """The dataset with a separate thread pool, so that it never delays the operations of a step."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    options.deterministic = True
    return data.with_options(options)
