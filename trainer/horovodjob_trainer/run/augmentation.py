"""Mixup, CutMix and RandAugment with the layers of Keras, functions of the seed and of the position of an image.

A resumed run therefore changes an image as an uninterrupted run does.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf
from keras import layers

CHOICE, CHANGE = 1, 2  # purposes of the random numbers of mixing
OPERATIONS_PER_IMAGE = 2
PURPOSES = range(10, 10 + 2 * OPERATIONS_PER_IMAGE)  # those of RandAugment
# The largest changes of RandAugment, at strength 1.
SHEAR, TRANSLATION, ROTATION, BLEND, BITS = 0.3, 0.45, 30 / 360, 0.9, 4
BRIGHTNESS = 0.45  # of the range of values, because Keras adds it, and the paper multiplies by up to 1.9
Mix = Callable[[Any, Any, Any], tuple[Any, Any]]


class PositionSeeds(keras.random.SeedGenerator):  # type: ignore[misc]
    """A seed generator without a state, so that a resumed run draws the numbers of an uninterrupted run.

    `position` is an integer tensor. The numbers of different purposes at the same position are independent. An object
    is for one branch of a graph, because it counts the operations when they are traced.
    """

    def __init__(self, seed: int, position: Any, purpose: int) -> None:
        self._key = tf.random.fold_in(tf.constant([seed, purpose], tf.int64), position)
        self._draws = 0

    def next(self, ordered: bool = True) -> Any:
        """The seed of the next random operation of a graph."""
        self._draws += 1
        return tf.random.fold_in(self._key, self._draws)


def batch_mixing(*, mixup: float | None, cutmix: float | None, seed: int) -> Mix | None:
    """The function that mixes float32 images, and in the same way their one-hot labels, with others of their batch.

    The numbers are the parameters of the beta distribution of the shares: Zhang et al. 2017 (arXiv:1710.09412) for
    mixup, Yun et al. 2019 (arXiv:1905.04899) for CutMix. With both, half of the batches get either. What is mixed
    depends only on the seed, the position of the batch, and its size. None without both.
    """
    # Keras draws the parameter of CutMix between two bounds.
    mixers: list[Any] = [keras.layers.MixUp(mixup, seed=0, dtype="float32")] if mixup else []
    mixers += [keras.layers.CutMix((cutmix, cutmix), seed=0, dtype="float32")] if cutmix else []

    def mix(position: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        def mixed_by(layer: Any) -> tuple[Any, Any]:
            seeds = PositionSeeds(seed, position, CHANGE)
            change = layer.get_random_transformation(images, training=True, seed=seeds)
            mixed = layer.transform_images(images, change), layer.transform_labels(labels, change)
            return tf.ensure_shape(mixed[0], images.shape), tf.ensure_shape(mixed[1], labels.shape)

        if len(mixers) == 1:
            return mixed_by(mixers[0])
        uses_first = keras.random.uniform((), seed=PositionSeeds(seed, position, CHOICE)) < 0.5
        mixed: tuple[Any, Any] = tf.cond(uses_first, lambda: mixed_by(mixers[0]), lambda: mixed_by(mixers[1]))
        return mixed

    return mix if mixers else None


class RandomAugment:
    """Changes uint8 images with two random operations each, as Cubuk et al. 2019 (arXiv:1909.13719).

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
