"""The input pipeline of a rank: the examples of each step, prefetched, and their preparation on the device."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer.data.order.sampling import Rows, rows_at_positions
from horovodjob_trainer.data.order.window import Window, WindowOrder
from horovodjob_trainer.data.reading.example_reader import map_dataset
from horovodjob_trainer.data.reading.random_crop import decode_random_crop
from horovodjob_trainer.data.reading.read_ahead import example_batches, with_private_threads
from horovodjob_trainer.data.source import EncodedSource, Source
from horovodjob_trainer.run.augmentation import Augmentation, augment_images

BLOCK_ROWS = 8192  # rows of a rank that are sampled at once, so that Python code runs once for many steps
PREFETCHED_BATCHES = 4
BATCHES_ON_DEVICE = 2


def training_batches(
    source: Source,
    *,
    batch: int,
    rank: int,
    size: int,
    seed: int,
    position: int = 0,
    threads: int = 2,
    steps: int | None = None,
    window: Window | None = None,
    streams: int | None = None,
    crop: bool = False,
    prepare: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
) -> Any:
    """Elements (position, examples, labels) for one rank as a tf.data.Dataset, infinite unless `steps` is given.

    The first batch is that of the step before which the whole job has consumed `position` examples. `position` of an
    element is that of its first example in the sequence of the job, which `batch_preparation` requires. Images are
    uint8. Every value depends only on the seed and its position in the sequence: a resumed run gets the batches of an
    uninterrupted run, on any number of threads, and the ranks of a job together get the examples that one rank with
    their whole batch would get.

    With a window, the order of a pass also depends on `streams`, the number of ranks at its beginning, by default
    `size`. A source with encoded examples is then read a window at a time.

    With `crop`, which requires encoded images, each image is a random resized crop of the encoded one.

    With `prepare`, a function of `batch_preparation`, the elements are what it makes of them.
    """

    def decode(content: Any, position: Any) -> Any:
        return decode_random_crop(content, source.shape[0], tf.stack([tf.constant(seed, tf.int64), position]))

    def read(first: Any, rows: Any, *contents: Any) -> tuple[Any, Any, Any]:
        if isinstance(source, EncodedSource) and (contents or crop):
            encoded = contents[0] if contents else source.contents(rows)
            crops = (first + tf.range(batch, dtype=tf.int64), decode) if crop else ()
            return first, *source.decode(rows, encoded, *crops)
        return first, *source.tensors(rows)

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
    examples = example_batches(rows, source, batch=batch, threads=threads, read=read, decode=decode if crop else None)
    return _prefetched(map_dataset(examples, prepare, threads) if prepare else examples, source, threads)


def evaluation_batches(source: Source, *, batch: int, rank: int = 0, size: int = 1, threads: int = 2) -> Any:
    """Elements (position, examples, labels) as a tf.data.Dataset: every size-th example.

    All ranks together see each example once. Positions have no meaning.
    """
    rows = tf.data.Dataset.range(rank, source.samples, size).batch(batch)
    rows = rows.map(lambda rows: (tf.constant(0, tf.int64), rows))
    count = rows.cardinality()
    examples = example_batches(rows, source, batch=batch, threads=threads)
    # Keras warns at the end of a dataset with an unknown number of batches.
    return _prefetched(examples.apply(tf.data.experimental.assert_cardinality(count)), source, threads)


def prepares_in_step() -> bool:
    """Whether the compiled step prepares the training batches, because a GPU computes it.

    Otherwise, the threads of the pipeline prepare the next batches while the step runs.
    """
    return bool(tf.config.list_logical_devices("GPU"))


def batch_preparation(
    source: Source,
    *,
    batch: int | None = None,
    seed: int = 0,
    augment: Augmentation | None = None,
    encode: Callable[..., Any] | None = None,
) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """The function that makes (examples, labels) for the model of an element, with operations that every device has.

    Examples become float32 and images have values from 0 to 1. The change of an image by `augment` depends only on the
    seed and its position, and requires the static size of the batch. `encode` encodes the labels.
    """

    def prepare(position: Any, examples: Any, labels: Any) -> tuple[Any, Any]:
        examples = tf.cast(tf.ensure_shape(examples, (batch, *source.shape)), tf.float32)
        if source.images:
            examples = examples * np.float32(1 / 255)
            if augment is not None and augment.is_active:
                examples = augment_images(examples, position, seed=seed, augmentation=augment)
        return encode(examples, labels) if encode else (examples, labels)

    return prepare


def _prefetched(data: Any, source: Source, threads: int) -> Any:
    data = with_private_threads(data.prefetch(PREFETCHED_BATCHES), source, threads)
    if gpus := tf.config.list_logical_devices("GPU"):
        data = data.apply(tf.data.experimental.prefetch_to_device(gpus[0].name, BATCHES_ON_DEVICE))
    return data
