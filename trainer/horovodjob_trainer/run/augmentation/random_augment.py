"""RandAugment of Cubuk et al. 2019 (arXiv:1909.13719) with the operations of Keras."""

from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from horovodjob_trainer.run.augmentation.position_seeds import PositionSeeds

OPERATIONS_PER_IMAGE = 2
PURPOSES = range(10, 10 + 2 * OPERATIONS_PER_IMAGE)
# The largest changes of the paper, at strength 1.
SHEAR, TRANSLATION, ROTATION, BLEND, BITS = 0.3, 0.45, 30 / 360, 0.9, 4
BRIGHTNESS = 0.45  # of the range of values, because Keras adds it, and the paper multiplies by up to 1.9


class RandomAugment:
    """Changes uint8 images with two random operations each.

    The change of an image depends only on the seed and its position. keras.layers.RandAugment draws the operations once
    for a batch, computes all of them, and with a low strength inverts most values and keeps only one bit of them.
    """

    def __init__(self, strength: float, shape: tuple[int, ...], seed: int) -> None:
        self.seed, self.shape = seed, shape
        self.operations = _operations(strength)
        for each in self.operations:
            each.build((1, *shape))

    def augmented(self, position: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
        """The element with changed images, the first of which has this position."""
        positions = position + tf.range(tf.shape(images, tf.int64)[0])
        signature = tf.TensorSpec(self.shape, tf.uint8)
        return position, tf.map_fn(self._augmented_image, (images, positions), fn_output_signature=signature), labels

    def _augmented_image(self, element: tuple[Any, Any]) -> Any:
        image, position = element
        images = tf.cast(image[tf.newaxis], tf.float32)
        for choice, change in zip(PURPOSES[::2], PURPOSES[1::2], strict=True):
            seeds = PositionSeeds(self.seed, position, choice)
            number = keras.random.randint((), 0, len(self.operations), seed=seeds)
            # Only the drawn operation is computed.
            images = tf.switch_case(
                number, [partial(self._changed, each, images, position, change) for each in self.operations]
            )
        return tf.cast(tf.clip_by_value(tf.round(images[0]), 0, 255), tf.uint8)

    def _changed(self, operation: Any, images: Any, position: Any, purpose: int) -> Any:
        seeds = PositionSeeds(self.seed, position, purpose)
        change = operation.get_random_transformation(images, training=True, seed=seeds)
        return tf.ensure_shape(operation.transform_images(images, change, training=True), images.shape)


class _Solarization(layers.Solarization):  # type: ignore[misc]
    """Inverts the values from a threshold. Keras draws the threshold between 0 and a maximum."""

    def __init__(self, threshold: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.threshold = threshold

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> dict[str, Any]:
        return {"additions": tf.zeros((1, 1, 1, 1)), "thresholds": tf.fill((1, 1, 1, 1), self.threshold)}


def _operations(strength: float) -> list[Any]:
    """The operations for images of values from 0 to 255. Geometric ones repeat the nearest edge in the free area."""
    # The layers have a seed only because they would otherwise draw one from the random numbers of Python.
    common: dict[str, Any] = {"seed": 0, "dtype": "float32"}
    geometric = {"fill_mode": "nearest", **common}
    shift, blend, bits = TRANSLATION * strength, BLEND * strength, round(8 - BITS * strength)
    return [
        layers.RandomShear(SHEAR * strength, 0.0, **geometric),
        layers.RandomShear(0.0, SHEAR * strength, **geometric),
        layers.RandomTranslation(shift, 0.0, **geometric),
        layers.RandomTranslation(0.0, shift, **geometric),
        layers.RandomRotation(ROTATION * strength, **geometric),
        layers.RandomBrightness(BRIGHTNESS * strength, **common),
        layers.RandomColorDegeneration(blend, **common),
        layers.RandomContrast(blend, **common),
        layers.RandomSharpness((0.5 - blend / 2, 0.5 + blend / 2), **common),  # 0.5 is the image itself
        layers.RandomPosterization((bits, bits), **common),
        _Solarization(255.0 * (1 - strength), **common),
        layers.AutoContrast(dtype="float32"),
        layers.Equalization(dtype="float32"),
    ]
