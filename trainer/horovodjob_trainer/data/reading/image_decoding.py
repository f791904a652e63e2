"""The decoding of images: the central square, or a random crop."""

from typing import Any

from horovodjob_trainer.data.source import Decode

AREA, ASPECT_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
ATTEMPTS = 10


def central_square(size: int, share: float = 1.0) -> Decode:
    """The decoding of the central square of an image, scaled to `size` x `size` x 3 bytes.

    Its side is a share of the shorter side of the image.
    """
    return lambda content, _: decode_image(content, size, share)


def random_crop(size: int, seed: int) -> Decode:
    """The decoding of a random part of an image, scaled to `size` x `size` x 3 bytes.

    It depends only on the image, the seed and the position.
    """
    import tensorflow as tf

    def decode(content: Any, position: Any) -> Any:
        return _decode_random_crop(content, size, tf.stack([tf.constant(seed, tf.int64), position]))

    return decode


def decode_image(content: Any, size: int, share: float = 1.0) -> Any:
    """The central square of the image in the content of a file, scaled to `size` x `size` x 3 bytes.

    Its side is a share of the shorter side of the image.
    """
    import tensorflow as tf

    image = tf.io.decode_image(content, channels=3, expand_animations=False)
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    side = tf.minimum(height, width)
    if share != 1:
        side = tf.maximum(tf.cast(tf.round(tf.cast(side, tf.float32) * share), tf.int32), 1)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top : top + side, left : left + side]

    def scale() -> Any:
        pixels = tf.image.resize(square, (size, size), antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)

    return tf.ensure_shape(tf.cond(side == size, lambda: square, scale), (size, size, 3))


def _decode_random_crop(content: Any, size: int, seed: Any) -> Any:
    """The random resized crop of Szegedy et al. 2014 (arXiv:1409.4842, section 6), with which ImageNet is trained.

    `seed` is two integers. Of a JPEG image, only that part is decoded.
    """
    import tensorflow as tf

    def window(shape: Any) -> Any:
        """Top, left, height and width. The whole image if no attempt fits into it."""
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            shape,
            tf.zeros((1, 0, 4)),
            seed,
            aspect_ratio_range=ASPECT_RATIO,
            area_range=AREA,
            max_attempts=ATTEMPTS,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], extent[:2]], 0)

    def crop_jpeg() -> Any:
        return tf.image.decode_and_crop_jpeg(content, window(tf.image.extract_jpeg_shape(content)), channels=3)

    def crop_other() -> Any:
        image = tf.io.decode_image(content, channels=3, expand_animations=False)
        top, left, height, width = tf.unstack(window(tf.shape(image)))
        return image[top : top + height, left : left + width]

    pixels = tf.image.resize(tf.cond(tf.io.is_jpeg(content), crop_jpeg, crop_other), (size, size))
    return tf.ensure_shape(tf.cast(tf.round(pixels), tf.uint8), (size, size, 3))
