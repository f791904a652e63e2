"""The input of a rank as tf.data: its rows of each step, augmented, ready before the step asks for them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer.data import CHANNELS, SIDE, Rows, Split, rows_of_step

SHIFT = 0.1  # of the image's side, in each direction


def training_batches(
    split: Split,
    *,
    batch: int,
    rank: int,
    size: int,
    seed: int,
    first_step: int = 0,
    augment: bool = False,
    flip: bool = False,
) -> Any:
    """Endless tf.data.Dataset of (images in 0..1, labels) for one rank, from step `first_step` on.

    Every value follows from seed and step: a run that goes on sees what it would have seen, on any number of
    threads, and the ranks of a job see what one rank with all their images would.
    """

    def steps() -> Iterator[tuple[int, Rows]]:
        step = first_step
        while True:
            yield step, rows_of_step(step, samples=len(split), batch=batch, rank=rank, size=size, seed=seed)
            step += 1

    images, labels = tf.constant(split.images), tf.constant(split.labels)

    def prepared(step: Any, rows: Any) -> tuple[Any, Any]:
        pictures = _scaled(tf.gather(images, rows))
        if augment:
            # Drawn for the whole job's batch, of which this rank takes its part.
            draws = tf.random.stateless_uniform((size * batch, 3), seed=tf.stack([tf.constant(seed, tf.int64), step]))
            pictures = _moved(pictures, draws[rank * batch : (rank + 1) * batch], flip=flip)
        return tf.ensure_shape(pictures, (batch, SIDE, SIDE, CHANNELS)), tf.gather(labels, rows)

    signature = (tf.TensorSpec((), tf.int64), tf.TensorSpec((batch,), tf.int64))
    order = tf.data.Dataset.from_generator(steps, output_signature=signature)
    return order.map(prepared, num_parallel_calls=2, deterministic=True).prefetch(4)


def evaluation_batches(split: Split, *, batch: int) -> Any:
    """tf.data.Dataset of (images in 0..1, labels), each image once."""
    data = tf.data.Dataset.from_tensor_slices((split.images, split.labels)).batch(batch)
    return data.map(lambda images, labels: (_scaled(images), labels)).prefetch(2)


def _scaled(images: Any) -> Any:
    return tf.cast(images, tf.float32) / np.float32(255)


def _moved(images: Any, draws: Any, *, flip: bool) -> Any:
    """Images shifted by up to SHIFT and, if wanted, half of them mirrored; the edge fills what comes free."""
    mirrored = tf.cast(draws[:, 0] < 0.5, tf.float32) if flip else tf.zeros_like(draws[:, 0])
    shift = (draws[:, 1:] * 2 - 1) * (SHIFT * SIDE)
    zero, one = tf.zeros_like(mirrored), tf.ones_like(mirrored)
    # Row by row: where in the image the output's pixel (x, y) comes from.
    transforms = tf.stack(
        [one - 2 * mirrored, zero, mirrored * (SIDE - 1) + shift[:, 0], zero, one, shift[:, 1], zero, zero], axis=1
    )
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=tf.constant([SIDE, SIDE]),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )
