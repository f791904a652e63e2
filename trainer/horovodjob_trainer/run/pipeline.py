"""The input pipeline of a rank: the examples of each step, prefetched, and their preparation on the device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer.data.elements import Elements
from horovodjob_trainer.data.order import Steps
from horovodjob_trainer.data.reading.augmentation import Augmentation, augment_images
from horovodjob_trainer.data.reading.example_reader import map_dataset, with_private_threads
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.run.augmentation import Mix, RandomAugment

PREFETCHED_BATCHES = 4
BATCHES_ON_DEVICE = 2


def training_batches(
    source: Source,
    steps: Steps,
    *,
    threads: int = 2,
    crop: bool = False,
    rand_augment: float | None = None,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
) -> Any:
    """Elements (position, examples, labels) for these steps as a tf.data.Dataset.

    `position` is that of the first example in the sequence of the job, which `batch_preparation` requires. Images are
    uint8. Every value depends only on the seed and its position, on any number of threads.

    With `crop`, which requires encoded images, each image is a random resized crop of the encoded one. With
    `rand_augment`, two random operations of this strength change each image. With `prepare`, a function of
    `batch_preparation`, the elements are what it makes of them.
    """
    examples = source.training_batches(steps, threads=threads, crop=crop)
    if rand_augment is not None:
        examples = map_dataset(examples, RandomAugment(rand_augment, source.shape, steps.seed).augmented, threads)
    return _prefetched(map_dataset(examples, prepare, threads) if prepare else examples, source, threads)


def evaluation_batches(source: Source, *, batch: int, rank: int = 0, size: int = 1, threads: int = 2) -> Any:
    """Elements (position, examples, labels) as a tf.data.Dataset: every size-th example.

    All ranks together see each example once. Positions have no meaning.
    """
    rows = tf.data.Dataset.range(rank, source.samples, size).batch(batch)
    rows = rows.map(lambda rows: (tf.constant(0, tf.int64), rows))
    count = rows.cardinality()
    examples = source.batches(rows, batch=batch, threads=threads)
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
    mix: Mix | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """The function that makes (examples, labels) for the model of an element, with operations that every device has.

    Examples become float32 and images have values from 0 to 1. The change of an image by `augment` depends only on the
    seed and its position, and requires the static size of the batch. `encode` encodes the labels, and
    `mix`, a function of `batch_mixing`, mixes the images and the encoded labels of the batch. Elements of a user's
    tf.data.Dataset remain as they are.
    """
    if isinstance(source, Elements):
        return lambda position, *element: source.with_batch_size(element, batch)

    def prepare(position: Any, examples: Any, labels: Any) -> tuple[Any, Any]:
        examples = tf.cast(tf.ensure_shape(examples, (batch, *source.shape)), tf.float32)
        if source.images:
            examples = examples * np.float32(1 / 255)
            if augment is not None and augment.is_active:
                examples = augment_images(examples, position, seed=seed, augmentation=augment)
        if encode is not None:
            examples, labels = encode(examples, labels)
        return (examples, labels) if mix is None else mix(position, examples, labels)

    return prepare


def prefetched_to_device(data: Any) -> Any:
    """The tf.data.Dataset with its next batches in the memory of the GPU, if this rank has one."""
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus or not all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(data.element_spec)):
        return data  # ragged and sparse tensors stay in the memory of the host
    return data.apply(tf.data.experimental.prefetch_to_device(gpus[0].name, BATCHES_ON_DEVICE))


def _prefetched(data: Any, source: Source, threads: int) -> Any:
    return prefetched_to_device(with_private_threads(data.prefetch(PREFETCHED_BATCHES), threads + source.readers))
