"""Random changes of training pictures, drawn from a picture's place in the job's sequence."""

from dataclasses import dataclass
from typing import Any

DRAWS = 4  # numbers that the generator gives at once, so that a picture's are found by its place


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How training pictures are changed: moved by up to `shift` of height and width, half of them mirrored."""

    shift: float = 0.0
    flip: bool = False

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.shift > 0 or self.flip


def augmented(pictures: Any, position: Any, *, seed: int, augmentation: Augmentation) -> Any:
    """Pictures of float32, those of the places from `position` on in the job's sequence, moved and mirrored.

    What comes free is filled with the nearest edge, and between pixels values are interpolated. As each picture's
    numbers follow from the seed and its own place, ranks and batches of any size change it alike.
    """
    import tensorflow as tf

    batch, height, width, _ = pictures.shape
    draws = _draws(position, batch, seed)
    shifts = (draws[:, 1:3] * 2 - 1) * augmentation.shift
    rows = tf.range(height, dtype=tf.float32)[tf.newaxis] + shifts[:, 0:1] * height
    columns = tf.broadcast_to(tf.range(width, dtype=tf.float32), (batch, width))
    if augmentation.flip:
        columns = tf.where(draws[:, 0:1] < 0.5, width - 1 - columns, columns)
    if not augmentation.shift:
        return tf.gather(pictures, tf.cast(columns, tf.int32), axis=2, batch_dims=1)
    moved = _interpolated(pictures, rows)
    sideways = tf.transpose(moved, (0, 2, 1, 3))
    moved = _interpolated(sideways, columns + shifts[:, 1:2] * width)
    return tf.transpose(moved, (0, 2, 1, 3))


def _draws(position: Any, batch: int, seed: int) -> Any:
    """Numbers in 0..1 of shape (batch, DRAWS), of which row i depends on the seed and `position + i` only.

    Philox is a function of a key and a counter, and each count yields DRAWS numbers.
    """
    import tensorflow as tf

    counter = tf.stack([tf.cast(position, tf.uint64), tf.constant(0, tf.uint64)])
    key = tf.constant([seed], tf.uint64)
    philox = tf.constant(1, tf.int32)
    return tf.raw_ops.StatelessRandomUniformV2(shape=(batch, DRAWS), key=key, counter=counter, alg=philox)


def _interpolated(pictures: Any, places: Any) -> Any:
    """Each picture's rows at its places (batch, rows), between two rows a mixture of them."""
    import tensorflow as tf

    last = pictures.shape[1] - 1
    places = tf.clip_by_value(places, 0.0, float(last))
    before = tf.floor(places)
    share = (places - before)[:, :, tf.newaxis, tf.newaxis]
    index = tf.cast(before, tf.int32)
    first = tf.gather(pictures, index, batch_dims=1)
    second = tf.gather(pictures, tf.minimum(index + 1, last), batch_dims=1)
    return first + (second - first) * share
