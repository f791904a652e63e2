"""Mixup and CutMix of the images of a batch, with the layers of Keras."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.run.augmentation.position_seeds import PositionSeeds

CHOICE, CHANGE = 1, 2  # purposes of random numbers
Mix = Callable[[Any, Any, Any], tuple[Any, Any]]


def batch_mixing(*, mixup: float | None, cutmix: float | None, seed: int) -> Mix | None:
    """The function that mixes float32 images, and in the same way their one-hot labels, with others of their batch.

    The numbers are the parameters of the beta distribution of the shares: Zhang et al. 2017 (arXiv:1710.09412) for
    mixup, Yun et al. 2019 (arXiv:1905.04899) for CutMix. With both, half of the batches get either. What is mixed
    depends only on the seed, the position of the batch, and its size. None without both.
    """
    # Keras draws the parameter of CutMix between two bounds.
    layers: list[Any] = [keras.layers.MixUp(mixup, seed=0, dtype="float32")] if mixup else []
    layers += [keras.layers.CutMix((cutmix, cutmix), seed=0, dtype="float32")] if cutmix else []

    def mix(position: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        def mixed_by(layer: Any) -> tuple[Any, Any]:
            seeds = PositionSeeds(seed, position, CHANGE)
            change = layer.get_random_transformation(images, training=True, seed=seeds)
            mixed = layer.transform_images(images, change), layer.transform_labels(labels, change)
            return tf.ensure_shape(mixed[0], images.shape), tf.ensure_shape(mixed[1], labels.shape)

        if len(layers) == 1:
            return mixed_by(layers[0])
        uses_first = keras.random.uniform((), seed=PositionSeeds(seed, position, CHOICE)) < 0.5
        mixed: tuple[Any, Any] = tf.cond(uses_first, lambda: mixed_by(layers[0]), lambda: mixed_by(layers[1]))
        return mixed

    return mix if layers else None
