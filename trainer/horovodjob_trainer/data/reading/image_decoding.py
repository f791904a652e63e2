"""The decoding of images: the central square, or a random crop."""

from functools import cache
from typing import Any

from horovodjob_trainer.data.reading.image_pixels import Pixels, Window, image_part
from horovodjob_trainer.data.source import Decode

AREA, ASPECT_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
ATTEMPTS = 10


def central_square(size: int, share: float = 1.0, *, exif: bool = True) -> Decode:
    """The decoding of the central square of an image, scaled to `size` x `size` x 3 bytes.

    Its side is a share of the shorter side of the image. With `exif`, the image is turned to its EXIF orientation.
    """

    def square(height: int, width: int) -> Window:
        side = max(round(min(height, width) * share), 1)
        return (height - side) // 2, (width - side) // 2, side, side

    return lambda content, _: image_part(content, square, size, antialias=True, exif=exif)


def random_crop(size: int, seed: int, *, exif: bool = True) -> Decode:
    """The decoding of a random part of an image, scaled to `size` x `size` x 3 bytes.

    It depends only on the image, the seed and the position. It is the random resized crop of Szegedy et al. 2014
    (arXiv:1409.4842, section 6), with which ImageNet is trained.
    """

    def decode(content: bytes, position: int) -> Pixels:
        return image_part(content, lambda *shape: _window(shape, (seed, position)), size, antialias=False, exif=exif)

    return decode


def _window(shape: tuple[int, ...], seed: tuple[int, int]) -> Window:
    """Top, left, height and width of a random part. The whole image if no attempt fits into it."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        no_boxes, least_covered = _constants()
        begin, extent, _ = tf.raw_ops.StatelessSampleDistortedBoundingBox(
            image_size=tf.constant((*shape, 3)),
            bounding_boxes=no_boxes,
            min_object_covered=least_covered,
            seed=tf.constant(seed, tf.int64),
            aspect_ratio_range=ASPECT_RATIO,
            area_range=AREA,
            max_attempts=ATTEMPTS,
            use_image_if_no_bounding_boxes=True,
        )
    (top, left, _), (height, width, _) = begin.numpy().tolist(), extent.numpy().tolist()
    return top, left, height, width


@cache
def _constants() -> tuple[Any, Any]:
    import tensorflow as tf

    return tf.zeros((1, 0, 4)), tf.constant(0.1)


def image_or_none(decode: Decode, content: bytes, position: int) -> Pixels | None:
    """The pixels of an image, None if its content is no complete image."""
    try:
        return decode(content, position)
    except MemoryError:
        raise
    except Exception:  # Pillow and its formats raise many types
        return None
