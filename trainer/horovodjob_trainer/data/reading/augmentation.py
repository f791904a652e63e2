"""Random augmentation of training images, a function of the position of an image in the sequence of the job."""

from dataclasses import dataclass
from typing import Any

NUMBERS_PER_IMAGE = 4  # Philox generates this many numbers per count, so that an image has a count of its own


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Augmentation of training images: a shift by up to `shift` of height and width, and a flip of half of them."""

    shift: float = 0.0
    flip: bool = False

    @property
    def is_active(self) -> bool:
        """Whether images are changed at all."""
        return self.shift > 0 or self.flip


def augment_images(images: Any, position: Any, *, seed: int, augmentation: Augmentation) -> Any:
    """Shift and flip float32 images whose positions in the sequence of the job begin at `position`.

    The nearest edge fills the free area, and values between pixels are interpolated. The change of an image depends
    only on the seed and its position, not on the rank or the size of the batch.
    """
    import tensorflow as tf

    batch, height, width, _ = images.shape
    numbers = _random_numbers(position, batch, seed)
    shifts = (numbers[:, 1:3] * 2 - 1) * augmentation.shift
    rows = tf.range(height, dtype=tf.float32)[tf.newaxis] + shifts[:, 0:1] * height
    columns = tf.broadcast_to(tf.range(width, dtype=tf.float32), (batch, width))
    if augmentation.flip:
        columns = tf.where(numbers[:, 0:1] < 0.5, width - 1 - columns, columns)
    if not augmentation.shift:
        return tf.gather(images, tf.cast(columns, tf.int32), axis=2, batch_dims=1)
    shifted = _interpolate_rows(images, rows)
    transposed = tf.transpose(shifted, (0, 2, 1, 3))
    shifted = _interpolate_rows(transposed, columns + shifts[:, 1:2] * width)
    return tf.transpose(shifted, (0, 2, 1, 3))


def _random_numbers(position: Any, batch: int, seed: int) -> Any:
    """Numbers from 0 to 1 of shape (batch, NUMBERS_PER_IMAGE); row i depends only on the seed and `position + i`.

    Philox is a function of a key and a counter, and each count yields NUMBERS_PER_IMAGE numbers.
    """
    import tensorflow as tf

    counter = tf.stack([tf.cast(position, tf.uint64), tf.constant(0, tf.uint64)])
    key = tf.constant([seed], tf.uint64)
    philox = tf.constant(1, tf.int32)
    return tf.raw_ops.StatelessRandomUniformV2(shape=(batch, NUMBERS_PER_IMAGE), key=key, counter=counter, alg=philox)


def _interpolate_rows(images: Any, positions: Any) -> Any:
    """The rows of each image at its positions (batch, rows), linearly interpolated."""
    import tensorflow as tf

    last = images.shape[1] - 1
    positions = tf.clip_by_value(positions, 0.0, float(last))
    before = tf.floor(positions)
    fraction = (positions - before)[:, :, tf.newaxis, tf.newaxis]
    index = tf.cast(before, tf.int32)
    first = tf.gather(images, index, batch_dims=1)
    second = tf.gather(images, tf.minimum(index + 1, last), batch_dims=1)
    return first + (second - first) * fraction
